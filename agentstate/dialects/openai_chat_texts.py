"""Another text in the place of a chat answer's own; calls, ids, usage and unknown fields stay.

What speaks of the old text goes with it: log probabilities, citations by place, a spoken form. The
counterpart for arguments of calls is `openai_chat_calls.py`.
"""

from __future__ import annotations

from agentstate.dialects.edits import no_choice
from agentstate.dialects.lenient import as_list, as_object
from agentstate.dialects.openai_chat_calls import read_body
from agentstate.dialects.openai_chat_reading import choice_index
from agentstate.ground.canonical import JSON, encode

_OF_TEXT = ("annotations", "audio")
# Ends of an answer that was cut: what a person wrote is whole.
_CUT_ENDS = ("length", "content_filter")


def with_text(body: bytes, choice: int, text: str) -> bytes:
    """Return an answer that says something else; see `base.CallsTools`."""
    value = read_body(body)
    choices: list[JSON] = []
    is_found = False
    for entry, each in enumerate(as_list(value.get("choices"))):
        if isinstance(each, dict) and choice_index(each.get("index"), entry) == choice:
            is_found = True
            each = _changed(each, text)
        choices.append(each)
    if not is_found:
        raise no_choice(choice, len(choices))
    return encode({**value, "choices": choices})


def _changed(choice: dict[str, JSON], text: str) -> dict[str, JSON]:
    message = as_object(choice.get("message"))
    kept = {key: value for key, value in message.items() if key not in _OF_TEXT}
    has_calls = bool(message.get("tool_calls") or message.get("function_call"))
    kept["content"] = _content(message.get("content"), text, is_optional=has_calls)
    if message.get("refusal"):
        kept["refusal"] = None
    changed: dict[str, JSON] = {**choice, "message": kept}
    if choice.get("logprobs") is not None:
        changed["logprobs"] = None
    if choice.get("finish_reason") in _CUT_ENDS:
        changed["finish_reason"] = "tool_calls" if has_calls else "stop"
    return changed


def _content(before: JSON, text: str, *, is_optional: bool) -> JSON:
    """Return a content with this text; of a list of parts (Mistral) those that are no text stay."""
    if not isinstance(before, list):
        return None if is_optional and not text else text
    others = [part for part in before if as_object(part).get("type") != "text"]
    said: list[JSON] = [{"type": "text", "text": text}] if text else []
    return [*others, *said]
