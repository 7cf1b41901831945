"""The agent of the full demo: a loop of questions, answers and tools, plain `http.client`.

It knows a base URL, the name of its session and of its own life (`x-agent-run-id`), and keeps all
else in memory, so a kill loses all of it. What it is to do comes as one JSON object, its *order*;
it prints one JSON line per thing that happens, which `demo_stage.py` reads. As clients do, it asks
again while nobody answers.

One of its tools is durable: it asks before it acts, and tells what came of it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from agentstate.house.demo_agent import join_chunks

SILENCE_S = 30.0
TRIES = 100  # while nobody answers: ten seconds, in which a proxy is back
PAUSE_S = 0.1
TURNS_MAX = 8  # answers to one question; a loop of tools comes to an end
BEGIN_WAIT_S = 10.0  # how long the server holds a begin before it says that it still waits

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
MAIL = {"to": "ada@example.org", "text": "Your order is late."}
MAIL_SHAPE = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in MAIL},
    "required": list(MAIL),
}
CHARGE_SHAPE = {
    "type": "object",
    "properties": {"cents": {"type": "integer"}},
    "required": ["cents"],
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": shape}}
    for name, shape in (
        ("read_clock", NOTHING), ("send_email", MAIL_SHAPE), ("charge_card", CHARGE_SHAPE),
    )
]  # fmt: skip


class Refused(Exception):
    """A call was refused for good; the arguments are its code and its message."""


class Agent:
    """One life."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Take the order: `session`, `run`, `model`, `lanes` (lists of questions that are asked
        side by side), `url` (the server) or `base_url` (which names the session as well), and where
        they are wanted `headers`, `streams`, `clock` (what the
        clock shows in this life), `effects` (the file that stands for the card), and `dies` (the
        tool in which this life ends)."""
        self._order = order
        self._base = urlsplit(order.get("base_url") or f"{order['url']}/v1")
        self._headers = {
            "content-type": "application/json",
            "authorization": "Bearer mock-key",
            **({"x-agent-session-id": order["session"]} if "url" in order else {}),
            "x-agent-run-id": order["run"],
            **order.get("headers", {}),
        }
        self._printing = threading.Lock()

    def live(self) -> None:
        """Take all lanes to their ends."""
        lanes: list[list[str]] = self._order["lanes"]
        threads = [threading.Thread(target=self._walk, args=(lane,)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _walk(self, questions: list[str]) -> None:
        messages: list[dict[str, Any]] = [{"role": "system", "content": "You are terse."}]
        try:
            for question in questions:
                messages.append({"role": "user", "content": question})
                for _ in range(TURNS_MAX):
                    message = self._ask(messages)
                    messages.append(message)
                    calls = message.get("tool_calls") or []
                    messages.extend(self._use(call) for call in calls)
                    if not calls:
                        break
        except Refused as refusal:
            code, text = refusal.args
            self._tell({"refused": code, "message": text})

    def _ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        streams = bool(self._order.get("streams"))
        body: dict[str, Any] = {
            "model": self._order["model"], "messages": messages, "tools": TOOLS
        }  # fmt: skip
        body |= {"stream": True, "stream_options": {"include_usage": True}} if streams else {}
        status, headers, raw = self._send(f"{self._base.path}/chat/completions", body)
        if status != 200:
            error = json.loads(raw)["error"]
            raise Refused(error.get("code"), error.get("message"))
        message, answer_id = _read_stream(raw) if streams else _read_whole(raw)
        self._tell(
            {
                "answer": message["content"],
                "id": answer_id,
                "replay": headers.get("x-agentstate-replay"),
                "by": headers.get("x-agentstate-provider"),
                "cost_usd": float(headers.get("x-agentstate-cost-usd") or 0),
                "digest": hashlib.sha256(raw).hexdigest(),
                "tools": [call["function"]["name"] for call in message.get("tool_calls") or ()],
            }
        )
        return message

    def _use(self, call: dict[str, Any]) -> dict[str, Any]:
        name = call["function"]["name"]
        arguments = json.loads(call["function"]["arguments"])
        if name == "charge_card":
            result = self._charge(arguments)
        else:
            self._maybe_die(name)
            # Here a real agent would send it. Nothing leaves this machine.
            result = "sent" if name == "send_email" else f"It is {self._order.get('clock')}."
        self._tell({"used": name, "arguments": arguments, "result": result})
        return {"role": "tool", "tool_call_id": call["id"], "content": result}

    def _charge(self, arguments: dict[str, Any]) -> str:
        path = f"/api/sessions/{quote(self._order['session'], safe='')}/tool-calls"
        begin = {
            "name": "charge_card", "arguments": arguments, "owner": self._order["run"],
            "begin_id": "1", "wait_s": BEGIN_WAIT_S,
        }  # fmt: skip
        while (told := self._post(path, begin))["state"] in ("held", "unknown"):
            pass  # the server waits before it says so
        if told["state"] != "run":
            return str(told["result"])
        with Path(self._order["effects"]).open("a", encoding="utf-8") as effects:
            effects.write(f"charged {arguments['cents']}\n")
        self._maybe_die("charge_card")
        report = {"result": "receipt 1", "owner": self._order["run"]}
        self._post(f"{path}/{told['call']}/result", report)
        return "receipt 1"

    def _maybe_die(self, tool: str) -> None:
        if self._order.get("dies") == tool:
            os.kill(os.getpid(), signal.SIGKILL)

    def _post(self, path: str, value: dict[str, Any]) -> Any:
        status, _, raw = self._send(path, value)
        if status != 200:
            raise Refused(status, raw.decode())
        return json.loads(raw)

    def _send(self, path: str, value: dict[str, Any]) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Post a value, again while nobody answers."""
        body = json.dumps(value).encode()
        for _ in range(TRIES):
            connection = http.client.HTTPConnection(self._base.netloc, timeout=SILENCE_S)
            try:
                connection.request("POST", path, body, self._headers)
                response = connection.getresponse()
                return response.status, response.headers, self._receive(response)
            except (OSError, http.client.HTTPException):
                threading.Event().wait(PAUSE_S)
            finally:
                connection.close()
        raise Refused("unreachable", f"Nobody answers at {self._base.netloc}.")

    def _receive(self, response: http.client.HTTPResponse) -> bytes:
        raw = b""
        was_told = False
        while line := response.readline():
            if line.startswith(b":"):  # the server says that the call is held
                if not was_told:
                    self._tell({"held": True})
                was_told = True
            else:
                raw += line
        return raw

    def _tell(self, line: dict[str, Any]) -> None:
        with self._printing:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def _read_whole(raw: bytes) -> tuple[dict[str, Any], str]:
    answer = json.loads(raw)
    return answer["choices"][0]["message"], answer["id"]


def _read_stream(raw: bytes) -> tuple[dict[str, Any], str]:
    lines = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    chunks = [json.loads(line) for line in lines if line != b"[DONE]"]
    for chunk in chunks:
        if "error" in chunk:
            raise Refused(chunk["error"].get("code"), chunk["error"].get("message"))
    return join_chunks(chunks), chunks[0]["id"]


def main(order: dict[str, Any]) -> int:
    """Live once."""
    Agent(order).live()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
