"""An agent whose tool must not act twice; it can be told where to die.

    durable_agent.py BASE_URL SESSION CALLS EFFECTS [DIE_AT] [WAIT_S] [TOOL]

It asks the model, then calls its tool with what comes next, CALLS times, and remembers nothing
between lives. The tool's act is a line in the file EFFECTS, synced. DIE_AT is `before_act` or
`after_act`: there the process kills itself, in the first act of this life. Each line of its output
is JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from typing import Any

import agentstate

BASE_URL, SESSION, CALLS, EFFECTS = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
DIE_AT = sys.argv[5] if len(sys.argv) > 5 else ""
WAIT_S = float(sys.argv[6]) if len(sys.argv) > 6 else 0.0
TRIES = 1000
TOOL = sys.argv[7] if len(sys.argv) > 7 else "charge"


def say(**line: Any) -> None:
    """Tell the one who watches."""
    print(json.dumps(line), flush=True)


def die(point: str) -> None:
    """Die as by a crash, if this is where."""
    if point == DIE_AT:
        os.kill(os.getpid(), signal.SIGKILL)


@agentstate.tool(SESSION, name=TOOL, url=BASE_URL, wait_s=WAIT_S, on_refused="return")
def charge(order: str, cents: int = 100) -> Any:
    """Act: what is in the file has happened."""
    die("before_act")
    with open(EFFECTS, "a", encoding="utf-8") as file:
        file.write(f"{order} {cents}\n")
        file.flush()
        os.fsync(file.fileno())
    die("after_act")
    return {"receipt": f"receipt of {order}"}


def live() -> None:
    """Run from the first question on."""
    messages: list[Any] = [{"role": "user", "content": "Charge all orders."}]
    for number in range(CALLS):
        message = ask_model(messages, number)
        say(asked=number)
        # Each second order is the same one again: those are two acts all the same.
        receipt = charge(f"order {number // 2}")
        say(charged=number, receipt=receipt)
        messages.append(message)
        messages.append({"role": "user", "content": json.dumps(receipt)})
    say(done=True)


def ask_model(messages: list[Any], number: int) -> Any:
    """Ask, and ask again while the proxy is away; a plain client, since a life is to be short."""
    body = json.dumps({"model": "m", "messages": messages}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer sk-test"}
    headers |= {"x-agent-session-id": SESSION, "x-agent-step-number": str(number)}
    request = urllib.request.Request(f"{BASE_URL}/v1/chat/completions", body, headers)
    for _ in range(TRIES):
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)["choices"][0]["message"]
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the proxy does not come back")


try:
    live()
except agentstate.ToolUnknown as error:
    say(unknown=error.call)
    sys.exit(3)
