"""Another text in the place of a response's own; calls, thoughts, ids and usage stay.

A response says its text in message items, of which one is enough: the first one keeps its id and
says all of it. The counterpart for arguments of calls is `openai_responses_calls.py`.
"""

from __future__ import annotations

import hashlib

from agentstate.dialects.edits import no_choice
from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.dialects.openai_responses_calls import read_body
from agentstate.dialects.openai_responses_rounds import kind_of
from agentstate.ground.canonical import JSON, encode

_ID_CHARS = 48


def with_text(body: bytes, choice: int, text: str) -> bytes:
    """Return an answer that says something else; see `base.CallsTools`."""
    if choice != 0:
        raise no_choice(choice, 1)
    response = read_body(body)
    output = as_list(response.get("output"))
    messages = [item for item in map(as_object, output) if kind_of(item) == "message"]
    part: JSON = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    said: dict[str, JSON] = {**(messages[0] if messages else _message(response)), "content": [part]}
    if "status" in said:
        said["status"] = "completed"
    changed: list[JSON] = []
    waiting: list[JSON] = [said] if text else []
    for item in output:
        kind = kind_of(as_object(item))
        is_place = kind == "message" if messages else kind != "reasoning"
        if is_place:
            changed += waiting
            waiting = []
        if kind != "message":
            changed.append(item)
    whole = {**response, "output": [*changed, *waiting]}
    if "output_text" in whole:
        whole["output_text"] = text
    if response.get("status") == "incomplete":
        whole |= {"status": "completed", "incomplete_details": None}
    return encode(whole)


def _message(response: dict[str, JSON]) -> dict[str, JSON]:
    """Return a message for a response that had none, with an id that is always the same."""
    seed = (as_text(response.get("id")) or "").encode("utf-8", "surrogatepass")
    name = hashlib.sha256(b"message" + seed).hexdigest()[:_ID_CHARS]
    return {"id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant"}
