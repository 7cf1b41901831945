"""What the frameworks' agents have in common: four questions, a tool, and a death on demand.

    python -m tests.e2e.agents.frameworks.NAME BASE_URL SESSION [dies]

Each question makes two calls: one that asks for the tool, one with its result. The result differs
from life to life, as results do. An agent that `dies` is killed in the tool of the third question:
no handler runs, nothing is flushed. One that lives prints an answer a line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

MODEL = "gpt-4o-mini"
QUESTIONS = tuple(f'Please look_up {{"key": "k{number}"}} for me.' for number in range(4))
DEADLY = "k2"

BASE_URL, SESSION = sys.argv[1:3]
DIES = sys.argv[3:] == ["dies"]


def look_up(key: str) -> str:
    """Look a key up."""
    if DIES and key == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"found {key} in process {os.getpid()}"


def live(ask: Callable[[str], str]) -> None:
    """Ask every question and print the answers."""
    for question in QUESTIONS:
        print(ask(question), flush=True)
