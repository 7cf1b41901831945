"""Responses requests that go on from an earlier response by its id, and how they are written out.

What of an earlier request counts later is its input alone: its instructions were its own. Reasoning
is left out: without the vendor that keeps it, or its key, it means nothing.
Source: platform.openai.com/docs/guides/conversation-state.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentstate.dialects.lenient import Unreadable, as_list, as_object, as_text, read_exact
from agentstate.dialects.openai_responses_rounds import kind_of, list_input, without_id
from agentstate.ground.canonical import JSON

_LINK = "previous_response_id"
_KEPT_UNDER_NAMES = ("conversation", "prompt")


def link(body: Mapping[str, JSON]) -> str | None:
    """Return the id of the response that a request goes on from."""
    return as_text(body.get(_LINK))


def has_more_hidden(body: Mapping[str, JSON]) -> bool:
    """Say whether a request names a conversation or a prompt that the vendor keeps."""
    return any(body.get(key) is not None for key in _KEPT_UNDER_NAMES)


def with_link(
    body: Mapping[str, JSON], request: Mapping[str, JSON], answer: bytes
) -> dict[str, JSON]:
    """Return a request with the one before it, and its answer, before its own input."""
    try:
        output = as_list(as_object(read_exact(answer)).get("output"))
    except Unreadable:
        output = []
    said = [item for item in output if as_object(item).get("type") != "reasoning"]
    if len(said) < len(output):
        # The id of an item promises that its thought comes with it.
        said = [_free(as_object(item)) for item in said]
    whole = {key: value for key, value in body.items() if key != _LINK}
    whole |= {key: request[key] for key in (_LINK, *_KEPT_UNDER_NAMES) if request.get(key)}
    whole["input"] = [*list_input(request), *said, *list_input(body)]
    return whole


def _free(item: dict[str, JSON]) -> JSON:
    """Return an item of an answer without its id; a message then is the short form of one."""
    if kind_of(item) != "message":
        return without_id(item)
    parts = (as_object(part) for part in as_list(item.get("content")))
    texts = (as_text(part.get("text")) or as_text(part.get("refusal")) or "" for part in parts)
    return {"role": "assistant", "content": "".join(texts)}
