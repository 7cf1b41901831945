"""Answers of other models, written in Anthropic's Messages form, whole or as a stream.

What is written is recorded and replayed as if Anthropic had sent it, and a client sends it back in
its next request: so there is never a message without a block, and ids are such as the API takes.
Thoughts of another vendor's model are left out, since the API refuses them without its own
signature. The counterparts are `anthropic_messages_reading.py`, which reads back what is written
here, and `anthropic_messages_forms.py`: it makes of the stream what `write_answer` writes whole.
Source: platform.claude.com/docs/en/build-with-claude/{streaming,handling-stop-reasons} and the
types of the `anthropic` package 2.14, November 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from agentstate.dialects.anthropic_messages_forms import DONE_FRAME, NO_JSON_KEY
from agentstate.dialects.call_arguments import FREE_TEXT_KEY, object_of
from agentstate.dialects.lenient import Unreadable, join_text, read_exact
from agentstate.dialects.neutral import AnswerHead, Ending, Written, made_id, safe_id
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire import sse

# What a reason to stop means to others. `pause_turn` and what is new: nothing they have a word for.
_ENDINGS: dict[str, Ending] = {
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
}
_STOP_REASONS: dict[Ending, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "filtered": "refusal",
}


def ending(answer: Answer) -> Ending:
    """Say why an answer in this form ended."""
    found = _ENDINGS.get(answer.finish_reason or "", "stop")
    has_calls = any(not call.runs_upstream for _, call in answer.tool_calls)
    return "tool_calls" if has_calls and found not in ("length", "filtered") else found


def write_answer(answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
    """Write a whole answer in the form that is not streamed."""
    choice, used = _first(answer), set[str]()
    blocks: list[JSON] = [_text_block(text) for text in (choice.text, choice.refusal) if text]
    blocks += [
        {**_call_block(call, head, used), "input": _read_arguments(call)}
        for call in _own_calls(choice)
    ]
    message = _message(head, blocks or [_text_block("")], _write_usage(answer.usage))
    message |= _write_ending(answer, ending)
    return Written(encode(message), tuple(_list_dropped(answer)))


class MessagesWriter:
    """Writes one stream; see `neutral.AnswerWriter`.

    The form has one block open at a time, and other forms mix the pieces of calls freely. What
    comes for another block waits until the open one can end: a text at once, a call when its
    arguments are a whole JSON object, and all with the answer. Blocks are written in the order in
    which they began.
    """

    __slots__ = ("_blocks", "_ended", "_head", "_ids", "_index")

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._blocks: list[_Block] = []  # that have not ended; only the first one can be open
        self._ended: set[int] = set()  # positions of calls that have
        self._ids: set[str] = set()  # of the calls so far
        self._index = 0  # of the first block

    def begin(self) -> bytes:
        """Return the start of the message; what it used is not known yet."""
        usage: dict[str, JSON] = {**_write_usage(None), "output_tokens": 1}
        return _event("message_start", message=_message(self._head, [], usage))

    def write(self, pieces: Sequence[Piece]) -> bytes:
        """Return the frames of these pieces."""
        for piece in pieces:
            # Nobody can ask for a second choice in this form.
            if piece.choice == 0 and piece.kind != "reasoning":
                self._take(piece)
        frames: list[bytes] = []
        while self._blocks:
            frames += self._flush(self._blocks[0])
            if len(self._blocks) == 1 or not self._blocks[0].can_end():
                break
            frames += self._close()
        return b"".join(frames)

    def end(self, answer: Answer, ending: Ending) -> bytes:
        """Return all that is left."""
        for call in _own_calls(_first(answer)):
            if call.position not in self._ended:
                self._know(call)
        if not self._blocks and self._index == 0:
            self._blocks.append(_Block("text"))
        frames: list[bytes] = []
        while self._blocks:
            frames += self._close()
        delta, usage = _write_ending(answer, ending), _write_usage(answer.usage)
        return b"".join((*frames, _event("message_delta", delta=delta, usage=usage), DONE_FRAME))

    def _take(self, piece: Piece) -> None:
        """Put a piece where it belongs."""
        if piece.kind == "call":
            if piece.position in self._ended:
                return  # white space after a whole object
            known = ToolCall(piece.position, piece.call_id, piece.name, "", piece.call_kind)
            self._block_of(known).take(piece.text)
            return
        if not piece.text:
            return
        # What it says and why it refused are two texts, as they are two blocks of a whole answer.
        kind: Literal["text", "refusal"] = "refusal" if piece.kind == "refusal" else "text"
        if not self._blocks or self._blocks[-1].kind != kind:
            self._blocks.append(_Block(kind))
        self._blocks[-1].take(piece.text)

    def _block_of(self, call: ToolCall) -> _Block:
        """Return the block of a call, which knows the name and the id it has by now."""
        for block in self._blocks:
            if block.call is not None and block.call.position == call.position:
                block.call = call
                return block
        self._blocks.append(_Block("call", call))
        return self._blocks[-1]

    def _know(self, call: ToolCall) -> None:
        """Take in a whole call: its last name and id, and arguments that no piece had."""
        block = self._block_of(call)
        if not block.texts:
            block.take(call.arguments)

    def _flush(self, block: _Block) -> Iterator[bytes]:
        """Yield what can be said of the first block by now."""
        if not block.is_open:
            if not block.can_begin():
                return
            block.is_open = True
            yield from self._open(block)
        if text := block.unsaid_text():
            yield _delta(self._index, block, text)

    def _open(self, block: _Block) -> Iterator[bytes]:
        opened: dict[str, JSON]
        if block.call is None:
            opened = _text_block("")
        else:
            opened = {**_call_block(block.call, self._head, self._ids), "input": {}}
        yield _event("content_block_start", index=self._index, content_block=opened)

    def _close(self) -> Iterator[bytes]:
        """Yield the rest of the first block, whole, and its end."""
        block = self._blocks.pop(0)
        if not block.is_open:
            yield from self._open(block)
        if text := block.unsaid_text(is_whole=True):
            yield _delta(self._index, block, text)
        yield _event("content_block_stop", index=self._index)
        if block.call is not None:
            self._ended.add(block.call.position)
        self._index += 1


class _Block:
    """One block of a stream, as far as its pieces came."""

    __slots__ = ("_checked", "_said", "call", "is_open", "kind", "texts")

    def __init__(
        self, kind: Literal["text", "refusal", "call"], call: ToolCall | None = None
    ) -> None:
        self.kind = kind
        self.call = call  # what is known of the call by now; None = it is a text
        self.texts: list[str] = []
        self.is_open = False
        self._said = 0  # how many of the texts are written
        self._checked = 0  # how many there were when they last were no whole object

    def take(self, text: str) -> None:
        if text:
            self.texts.append(text)

    def can_begin(self) -> bool:
        """Say whether what the start of the block says is known: a name may grow until arguments
        come, and white space is none; it may also come after them."""
        if self.call is None:
            return True
        return bool(self.call.name) and any(text.strip() for text in self.texts)

    def can_end(self) -> bool:
        """Say whether nothing can come that belongs into the block."""
        if self.call is None:
            return True
        if not self.can_begin() or _is_custom(self.call) or self._checked == len(self.texts):
            return False
        self._checked = len(self.texts)
        # Most pieces end within an object: those need not be joined to be read.
        return self.texts[-1].rstrip()[-1:] in ("}", "") and _is_whole(join_text(self.texts))

    def unsaid_text(self, *, is_whole: bool = False) -> str:
        """Return what of the block was not written yet; `is_whole` = no more comes."""
        text = "".join(self.texts[self._said :])
        is_first = self._said == 0
        self._said = len(self.texts)
        if self.call is None:
            return text
        if _is_custom(self.call):
            # The text becomes the one value of an object.
            begun = f'{{"{FREE_TEXT_KEY}":"' if is_first and (text or is_whole) else ""
            return begun + encode(text).decode("ascii")[1:-1] + ('"}' if is_whole else "")
        return "" if is_first and not text.strip() else text


def _delta(index: int, block: _Block, text: str) -> bytes:
    delta: dict[str, JSON]
    if block.call is None:
        delta = {"type": "text_delta", "text": text}
    else:
        delta = {"type": "input_json_delta", "partial_json": text}
    return _event("content_block_delta", index=index, delta=delta)


def _message(head: AnswerHead, content: list[JSON], usage: dict[str, JSON]) -> dict[str, JSON]:
    """Return a message that has not ended."""
    return {
        "id": f"msg_{head.seed}",
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _write_ending(answer: Answer, ending: Ending) -> dict[str, JSON]:
    reason, sequence = _STOP_REASONS[ending], answer.extra.get("stop_sequence")
    if ending == "stop" and _first(answer).refusal:
        reason = "refusal"  # others tell of it beside an end like any other
    if ending == "stop_sequence" and sequence is None:
        reason = "end_turn"  # a sequence that nobody can name
    is_sequence = reason == "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": sequence if is_sequence else None}


def _write_usage(usage: Usage | None) -> dict[str, JSON]:
    """Write token counts, 0 where none were reported: clients add them up."""
    usage = usage or Usage(0, 0)
    fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    written: dict[str, JSON] = {
        "input_tokens": max(fresh, 0),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return written


def _text_block(text: str) -> dict[str, JSON]:
    return {"type": "text", "text": text}


def _call_block(call: ToolCall, head: AnswerHead, used: set[str]) -> dict[str, JSON]:
    """Return a call without its arguments, under an id that no other one of `used` has: the API
    takes each once."""
    call_id = safe_id(call.call_id) if call.call_id else ""
    if not call_id or call_id in used:
        call_id = made_id(head.seed, 0, call.position)
    used.add(call_id)
    return {"type": "tool_use", "id": call_id, "name": call.name}


def _read_arguments(call: ToolCall) -> JSON:
    if _is_custom(call):
        return {FREE_TEXT_KEY: call.arguments}
    found = object_of(call.arguments)
    return {NO_JSON_KEY: call.arguments} if found is None else found


def _is_whole(text: str) -> bool:
    """Say whether arguments are an object that cannot grow. An empty one can: some servers begin
    every call with it."""
    try:
        value = read_exact(text)
    except Unreadable:
        return False
    return isinstance(value, dict) and bool(value)


def _is_custom(call: ToolCall) -> bool:
    return call.kind == "custom"


def _first(answer: Answer) -> Choice:
    return answer.choices[0] if answer.choices else Choice(0)


def _own_calls(choice: Choice) -> list[ToolCall]:
    """Return the calls that the agent is to run."""
    return [call for call in choice.tool_calls if not call.runs_upstream]


def _list_dropped(answer: Answer) -> Iterator[str]:
    choice = _first(answer)
    if choice.reasoning:
        yield "reasoning"
    if len(_own_calls(choice)) < len(choice.tool_calls):
        yield "calls that the provider ran"
    if len(answer.choices) > 1:
        yield "all choices but the first"


def _event(kind: str, **fields: JSON) -> bytes:
    return sse.encode(encode({"type": kind, **fields}), kind.encode("ascii"))
