"""Joins two chat answers into one: the text of a round before, and the answer that came after it.

When the model was asked again after a refusal, the client has got, or gets, the beginning of the
first answer and then the second one as if it were the same: under one id, the role said once, a
blank line between the texts. The counterpart is `openai_chat_history.py`, which makes the request
that the second one answers. The invariant: of the first nothing is changed, of the second no text,
call, end or usage is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentstate.dialects.lenient import as_list, as_object
from agentstate.dialects.openai_chat_calls import read_body, render_chunk
from agentstate.dialects.openai_chat_reading import choice_index, read_chunk, text_of
from agentstate.ground.canonical import JSON, encode
from agentstate.wire.sse import Frame

BETWEEN = "\n\n"

# What says of a chunk which answer it belongs to: clients may take another one for another answer.
SAME_KEYS = ("id", "created", "model")


def joined_body(text: str, second: bytes) -> bytes:
    """Put a text before the first choice's own; see `base.CallsTools`."""
    if not text:
        return second
    value = read_body(second)
    choices = as_list(value.get("choices"))
    first = min(
        (entry for entry, choice in enumerate(choices) if isinstance(choice, dict)),
        key=lambda entry: choice_index(as_object(choices[entry]).get("index"), entry),
        default=None,
    )
    if first is None:
        return second
    choice = as_object(choices[first])
    message = as_object(choice.get("message"))
    own = message.get("content")
    between = BETWEEN if _text_in(own) else ""
    message = {**message, "content": _prefixed(text + between, own)}
    choices = [*choices[:first], {**choice, "message": message}, *choices[first + 1 :]]
    return encode({**value, "choices": choices})


def joined_events(first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
    """Let a stream go on as another one; see `base.CallsTools`."""
    beginning = _Beginning()
    for frame in first:
        if (chunk := read_chunk(frame)) is not None:
            beginning.take(chunk)
    out = [frame.raw for frame in first]
    for frame in second:
        is_chunk = read_chunk(frame) is not None
        out.append(beginning.continued(frame) if is_chunk else frame.raw)
    return b"".join(out)


class _Beginning:
    """What a client knows of an answer from the beginning of its stream."""

    def __init__(self) -> None:
        self._head: dict[str, JSON] = {}
        self._with_role: set[int] = set()  # choices of which the role was said
        self._with_text: set[int] = set()  # choices with text, until more of it comes

    def take(self, chunk: dict[str, JSON]) -> None:
        for key in SAME_KEYS:
            if chunk.get(key) and key not in self._head:  # Azure's first chunk says nothing
                self._head[key] = chunk[key]
        for entry, choice in enumerate(as_list(chunk.get("choices"))):
            if isinstance(choice, dict):
                index = choice_index(choice.get("index"), entry)
                delta = as_object(choice.get("delta"))
                if delta.get("role"):
                    self._with_role.add(index)
                if _text_in(delta.get("content")):
                    self._with_text.add(index)

    def continued(self, frame: Frame) -> bytes:
        """Return a frame of the second stream as one that goes on from here."""
        chunk = read_body(frame.data or b"")
        new = chunk | {
            key: self._head[key] for key in SAME_KEYS if chunk.get(key) and key in self._head
        }
        if isinstance(choices := chunk.get("choices"), list):
            new["choices"] = [
                self._continued_choice(entry, choice) for entry, choice in enumerate(choices)
            ]
        return frame.raw if new == chunk else render_chunk(frame, new)

    def _continued_choice(self, entry: int, choice: JSON) -> JSON:
        if not isinstance(choice, dict) or not isinstance(delta := choice.get("delta"), dict):
            return choice
        index = choice_index(choice.get("index"), entry)
        new = {**delta}
        if index in self._with_role:
            new.pop("role", None)  # clients that add up deltas would add up the roles
        if index in self._with_text and _text_in(delta.get("content")):
            self._with_text.remove(index)
            new["content"] = _prefixed(BETWEEN, delta["content"])
        return {**choice, "delta": new}


def _text_in(content: JSON) -> str:
    return content if isinstance(content, str) else text_of(content)


def _prefixed(prefix: str, content: JSON) -> JSON:
    if isinstance(content, list):
        return [{"type": "text", "text": prefix}, *content]
    return prefix + content if isinstance(content, str) else prefix
