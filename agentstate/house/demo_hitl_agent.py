"""The agent of the hitl demo: it has a tool with consequences, and does what the model says.

Plain `http.client` and a streamed call, as agents make them: while a person thinks it waits like
for a slow model. It prints one JSON line per thing that happens; `demo_hitl.py` reads them.
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any

from agentstate.ground.clock import now_ms
from agentstate.house.demo_agent import join_chunks

SILENCE_S = 60.0  # of the server; it says something every few seconds, however long a hold takes
STEPS_MAX = 4
MAIL = {
    "to": "ada@example.org",
    "subject": "Order 1042",
    "body": "Your order is two days late. We are sorry.",
}
TASK = f"Order 1042 is late. Tell the customer: use send_email {json.dumps(MAIL)}"
SEND_EMAIL = {
    "type": "function",
    "function": {
        "name": "send_email",
        "description": "Send an e-mail to a customer. It cannot be taken back.",
        "parameters": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in MAIL},
            "required": list(MAIL),
            "additionalProperties": False,
        },
    },
}


def main(host: str, port: int, session: str, model: str) -> int:
    """Work until the model has nothing left to do, or the call is refused."""
    connection = http.client.HTTPConnection(host, port, timeout=SILENCE_S)
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for step in range(STEPS_MAX):
        body = {"model": model, "messages": messages, "tools": [SEND_EMAIL], "stream": True}
        headers = {
            "content-type": "application/json",
            "authorization": "Bearer mock-key",
            "x-agent-session-id": session,
            "x-agent-step-number": str(step),
        }
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        message, error = _read(_receive(connection.getresponse()))
        if error is not None:
            _print({"refused": error["code"], "message": error["message"]})
            break
        messages.append(message)
        calls = message.get("tool_calls", [])
        for call in calls:
            # Here a real agent would send it. Nothing leaves this machine.
            _print({"sent": json.loads(call["function"]["arguments"]), "at_ms": now_ms()})
            done = {"role": "tool", "tool_call_id": call["id"], "content": "It was sent."}
            messages.append(done)
        if not calls:
            _print({"said": message["content"]})
            break
    connection.close()
    return 0


def _receive(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read()
    except http.client.IncompleteRead as cut:
        return cut.partial  # a stream that ends with an error is cut, so that it never looks whole


def _read(raw: bytes) -> tuple[dict[str, Any], dict[str, str] | None]:
    """Put the chunks of a stream together, as a client library does; the second is an error."""
    if raw.startswith(b"{"):
        return {}, json.loads(raw)["error"]
    chunks: list[dict[str, Any]] = []
    for line in raw.split(b"\n"):
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue  # a comment, which says that the call is held, or the end
        chunk = json.loads(line[6:])
        if "error" in chunk:
            return {}, chunk["error"]
        chunks.append(chunk)
    return join_chunks(chunks), None


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
