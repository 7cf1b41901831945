"""Another text in the place of a message's own; thinking, calls, ids and usage stay.

The counterpart for arguments of calls is `anthropic_messages_calls.py`.
"""

from __future__ import annotations

from agentstate.dialects.anthropic_messages_calls import THOUGHTS, read_object
from agentstate.dialects.anthropic_messages_reading import is_tool_call
from agentstate.dialects.edits import no_choice
from agentstate.dialects.lenient import as_list, as_object
from agentstate.ground.canonical import JSON, encode

# Ends of an answer that was cut, or not given: what a person wrote is whole.
_CUT_ENDS = ("max_tokens", "refusal", "model_context_window_exceeded")


def with_text(body: bytes, choice: int, text: str) -> bytes:
    """Return an answer that says something else; see `base.CallsTools`."""
    if choice != 0:
        raise no_choice(choice, 1)
    message = read_object(body)
    blocks = as_list(message.get("content"))
    kinds = [as_object(block).get("type") for block in blocks]
    place = 0
    while place < len(kinds) and kinds[place] in THOUGHTS:
        place += 1
    if "text" in kinds:
        place = kinds.index("text")
    # The API takes no text with nothing in it beside other blocks, and clients want one block.
    others = [block for block in blocks if as_object(block).get("type") != "text"]
    has_calls = any(is_tool_call(as_object(block)) for block in others)
    said: list[JSON] = [{"type": "text", "text": text}] if text or not has_calls else []
    before = sum(kind != "text" for kind in kinds[:place])
    message["content"] = [*others[:before], *said, *others[before:]]
    if message.get("stop_reason") in _CUT_ENDS:
        message["stop_reason"] = "tool_use" if has_calls else "end_turn"
    return encode(message)
