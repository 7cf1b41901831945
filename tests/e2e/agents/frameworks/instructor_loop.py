"""Instructor: each answer is an object, got by a forced tool call."""

from __future__ import annotations

import instructor
from pydantic import BaseModel

import agentstate
from tests.e2e.agents.frameworks import life

session = agentstate.session(life.SESSION, base_url=life.BASE_URL, api_key="mock-key")
client = instructor.from_openai(session.openai())


class LookUp(BaseModel):
    """Look a key up."""

    key: str


def ask(question: str) -> str:
    """Have the question made an object, then have the object's key looked up."""
    found = client.chat.completions.create(
        model=life.MODEL,
        response_model=LookUp,
        messages=[{"role": "user", "content": question.replace("look_up", "LookUp")}],
    )
    result = life.look_up(found.key)
    again = client.chat.completions.create(
        model=life.MODEL,
        response_model=LookUp,
        messages=[{"role": "user", "content": f'LookUp {{"key": "{found.key}!"}} {result[:8]}'}],
    )
    return str(again.key)


life.live(ask)
