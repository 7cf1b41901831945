"""The agent of the demo: what a user's own agent looks like from outside.

Plain `http.client`: it knows a base URL, a session header and nothing else of AgentState. It keeps
its conversation in memory only, so a kill loses all of it and the next run begins at step 0. Each
step's messages contain all answers before it, some steps call a tool, some stream. It prints one
JSON line when it has asked and one when it has the answer; `demo.py` reads them.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterable
from typing import Any

from agentstate.ground.clock import monotonic_s

TIMEOUT_S = 60.0
TOPICS = ("prices", "suppliers", "deliveries", "complaints", "forecasts", "contracts", "returns")
STREAMS_EVERY = 5  # every fifth step asks for a stream
TOOL_EVERY = 7  # every seventh asks for a tool, and the step after it hands the result back

SEARCH = {
    "type": "function",
    "function": {
        "name": "search_orders",
        "description": "Search the order book",
        "parameters": {
            "type": "object",
            "properties": {"topic": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["topic", "limit"],
        },
    },
}


def main(host: str, port: int, session: str, model: str, steps: int) -> int:
    """Take `steps` steps from the beginning; return 1 if a call failed."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You audit an order book. Answer in one sentence."}
    ]
    for step in range(steps):
        if messages[-1]["role"] != "tool":
            messages.append({"role": "user", "content": _task(step)})
        body: dict[str, Any] = {"model": model, "messages": messages, "tools": [SEARCH]}
        if step % STREAMS_EVERY == STREAMS_EVERY - 1:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        began_s = monotonic_s()
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {
                "content-type": "application/json",
                "authorization": "Bearer mock-key",
                "x-agent-session-id": session,
                "x-agent-step-number": str(step),
            },
        )
        _print({"asked": step})
        response = connection.getresponse()
        raw = response.read()
        if response.status != 200:
            _print({"failed": step, "status": response.status, "body": raw[:500].decode()})
            return 1
        message, usage = _read_stream(raw) if "stream" in body else _read_whole(raw)
        _print(
            {
                "step": step,
                "replay": response.headers.get("x-agentstate-replay"),
                "ms": (monotonic_s() - began_s) * 1000,
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
                "streamed": "stream" in body,
                "tools": [call["function"]["name"] for call in message.get("tool_calls", [])],
            }
        )
        messages.append(message)
        messages.extend(_run_tool(call) for call in message.get("tool_calls", []))
    connection.close()
    return 0


def _task(step: int) -> str:
    topic = TOPICS[step % len(TOPICS)]
    if step % TOOL_EVERY == TOOL_EVERY - 3:
        return f"Use search_orders with topic={topic} and limit={step + 3}."
    return f"Task {step}: what stands out in the {topic}?"


def _run_tool(call: dict[str, Any]) -> dict[str, Any]:
    given = json.loads(call["function"]["arguments"])
    found = f"{given['limit']} orders mention {given['topic']}"
    return {"role": "tool", "tool_call_id": call["id"], "content": found}


def _read_whole(raw: bytes) -> tuple[dict[str, Any], dict[str, int]]:
    answer = json.loads(raw)
    message = answer["choices"][0]["message"]
    return {key: value for key, value in message.items() if value is not None}, answer["usage"]


def _read_stream(raw: bytes) -> tuple[dict[str, Any], dict[str, int]]:
    """Put the chunks of a stream together, as a client library does."""
    lines = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    if not lines or lines[-1] != b"[DONE]":
        raise SystemExit("The stream ended without [DONE].")
    chunks = [json.loads(line) for line in lines[:-1]]
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    return join_chunks(chunks), usages[-1] if usages else {}


def join_chunks(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that the chunks of a stream add up to, as a client library does."""
    text, calls = "", dict[int, dict[str, Any]]()
    for chunk in chunks:
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls") or ():
                call = calls.setdefault(piece["index"], {**piece, "function": {}})
                for key, value in piece["function"].items():
                    call["function"][key] = call["function"].get(key, "") + value
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        made = [{key: call[key] for key in ("id", "type", "function")} for call in calls.values()]
        message["tool_calls"] = made
    return message


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])))
