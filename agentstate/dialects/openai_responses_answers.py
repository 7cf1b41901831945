"""Answers in OpenAI's Responses form, written from the neutral form: whole, or as a stream.

An answer is made of items that have one text each: a message with text, one with a refusal, calls.
The events of an item are those of `openai_responses_forms.py`; the writer parts them at the delta,
so that a stream and the other form of a recorded answer are the same events. Every event names its
item, so all items stay open to the end, where it is known whether they are whole, and pieces go out
as they come. Invariant: calls are announced in the order of their positions, each when its name can
no longer grow.
Source: OpenAI's OpenAPI document of August 2026, schemas Response and ResponseStreamEvent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentstate.dialects.call_arguments import unwrap_free_text
from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.dialects.neutral import AnswerHead, Ending, Written, made_id
from agentstate.dialects.openai_responses_forms import Event, list_item_events, make_events
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire import sse

# What a response repeats of its request, with what stands there where that says nothing.
_REPEATED: dict[str, JSON] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
_TEXT: dict[str, JSON] = {"format": {"type": "text"}, "verbosity": "medium"}
_REASONING: dict[str, JSON] = {"effort": None, "summary": None}
_FUNCTION: dict[str, JSON] = {"description": None, "parameters": None, "strict": True}

_OURS = "a57e"  # how ours begin, so that they are known again without a look at the record
# In place of a model's own words, where it has none.
_FILTERED = "The answer was stopped by a content filter."
_ID_CHARS = 48  # as long as the vendor's
# What an id of an item begins with.
_PREFIXES = {"text": "msg", "refusal": "msg", "function": "fc", "custom": "ctc"}

# What an item is the one of, in an answer: its text, its refusal, or the call at a position.
_Key = Literal["text", "refusal"] | int


@dataclass(frozen=True, slots=True)
class _Item:
    kind: Literal["text", "refusal", "function", "custom"]
    name: str = ""  # of a call
    call_id: str = ""  # the same


def ending(answer: Answer) -> Ending:
    """Say why an answer in this form ended; a refusal has no reason of its own."""
    choice = _first(answer)
    if choice.finish_reason == "max_output_tokens":
        return "length"
    if choice.finish_reason == "content_filter":
        return "filtered"
    if _list_calls(choice):
        return "tool_calls"
    return "stop" if choice.refusal is None else "filtered"


def write_answer(answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
    """Write a whole answer in the form that is not streamed."""
    choice = _first(answer)
    said = list(_list_said(choice, ending, head).values())
    dropped = {
        "reasoning": choice.reasoning is not None,
        "tool calls of the provider's own": len(_list_calls(choice)) < len(choice.tool_calls),
        "n": len(answer.choices) > 1,
    }
    body = encode(_write_response(said, answer, ending, head))
    return Written(body, tuple(name for name, is_dropped in dropped.items() if is_dropped))


@dataclass(slots=True)
class _Waiting:
    """A call that was told of and is not announced yet."""

    latest: Piece
    texts: list[str] = field(default_factory=list)


class ResponsesWriter:
    """Writes one stream; see `neutral.AnswerWriter`."""

    __slots__ = ("_customs", "_deltas", "_head", "_items", "_number", "_waiting")

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._customs = _list_customs(head)
        self._number = 0  # of the next event
        self._items: dict[_Key, _Item] = {}  # that were announced, in their places
        self._deltas: dict[_Key, Event] = {}  # of each the event that brings a piece, but for that
        self._waiting: dict[int, _Waiting] = {}  # by position, in the order they were told of

    def begin(self) -> bytes:
        """Return the two events that open every stream."""
        begun = make_events(_write_response([], Answer(), "stop", self._head))[:2]
        self._number = len(begun)
        return b"".join(begun)

    def write(self, pieces: Sequence[Piece]) -> bytes:
        """Return the events of these pieces."""
        return b"".join(frame for piece in pieces for frame in self._write(piece))

    def end(self, answer: Answer, ending: Ending) -> bytes:
        """Return what was not announced, the end of each item, and the end of the response."""
        said = _list_said(_first(answer), ending, self._head)
        frames: list[bytes] = []
        for key, (item, text) in said.items():
            if key not in self._items:
                frames += self._announce(key, item)
                frames += [self._add(key, text)] if text else []
        # The answer has what the pieces add up to.
        whole = [(item, said[key][1]) for key, item in self._items.items()]
        response = _write_response(whole, answer, ending, self._head)
        for place, written in enumerate(as_list(response["output"])):
            *_, after = _part_events(place, as_object(written))
            frames += map(self._render, after)
        frames.append(self._render((f"response.{response['status']}", {"response": response})))
        return b"".join(frames)

    def _write(self, piece: Piece) -> Iterator[bytes]:
        # Nobody can ask for a second choice in this form, and thoughts are left out.
        if piece.choice != 0 or piece.kind == "reasoning":
            return
        if piece.kind == "call" and piece.position not in self._items:
            waiting = self._waiting.setdefault(piece.position, _Waiting(piece))
            waiting.latest = piece
            waiting.texts += [piece.text] if piece.text else []
            yield from self._announce_named()
            return
        key: _Key = piece.position if piece.kind == "call" else piece.kind
        if not piece.text:
            return
        if piece.kind != "call" and key not in self._items:
            yield from self._announce(key, _Item(piece.kind))
        yield self._add(key, piece.text)

    def _announce_named(self) -> Iterator[bytes]:
        """Announce the calls that wait, up to the first one whose name may still grow.

        That holds up those after it: a position is an order, and the order is all that tells it.
        """
        for position, waiting in list(self._waiting.items()):
            call = waiting.latest
            is_free_text = call.call_kind == "function" and call.name in self._customs
            # What stands for free text is JSON, which has to be whole to be read.
            if not (waiting.texts and call.name) or is_free_text:
                return
            yield from self._announce(position, _name_call(call, position, self._head))
            for text in waiting.texts:
                yield self._add(position, text)
            del self._waiting[position]

    def _announce(self, key: _Key, item: _Item) -> list[bytes]:
        """Give an item the next place and return the events that say so."""
        place = len(self._items)
        blank = _write_item(item, place, "", "in_progress", self._head)
        before, self._deltas[key], _ = _part_events(place, blank)
        self._items[key] = item
        return [*map(self._render, before)]

    def _add(self, key: _Key, text: str) -> bytes:
        name, fields = self._deltas[key]
        return self._render((name, {**fields, "delta": text}))

    def _render(self, event: Event) -> bytes:
        name, fields = event
        number, self._number = self._number, self._number + 1
        data = encode({"type": name, **fields, "sequence_number": number})
        return sse.encode(data, name.encode())


def _part_events(place: int, item: dict[str, JSON]) -> tuple[list[Event], Event, list[Event]]:
    """Return the events of an item: before its one delta, that, and after it."""
    events = list(list_item_events(place, item, None))
    at = next(at for at, (name, _) in enumerate(events) if name.endswith(".delta"))
    return events[:at], events[at], events[at + 1 :]


# --- what is said ---------------------------------------------------------------------------------


def _first(answer: Answer) -> Choice:
    return answer.choices[0] if answer.choices else Choice(0)


def _list_calls(choice: Choice) -> list[ToolCall]:
    return [call for call in choice.tool_calls if not call.runs_upstream]


def _list_said(choice: Choice, ending: Ending, head: AnswerHead) -> dict[_Key, tuple[_Item, str]]:
    """Return the items of an answer with the text of each, in order; there is always one.

    One that a filter cut off has a refusal: as a response that is incomplete for that reason it
    would be none that can be replayed (DESIGN section 4).
    """
    said: dict[_Key, tuple[_Item, str]] = {}
    if choice.text:
        said["text"] = _Item("text"), choice.text
    refusal = choice.refusal or (_FILTERED if ending == "filtered" else "")
    if refusal:
        said["refusal"] = _Item("refusal"), refusal
    customs = _list_customs(head)
    for call in _list_calls(choice):
        item, text = _name_call(call, call.position, head), call.arguments
        if call.kind == "function" and call.name in customs:
            item, text = _Item("custom", item.name, item.call_id), unwrap_free_text(text)
        said[call.position] = item, text
    return said or {"text": (_Item("text"), "")}


def _name_call(call: ToolCall | Piece, position: int, head: AnswerHead) -> _Item:
    kind = call.kind if isinstance(call, ToolCall) else call.call_kind
    call_id = call.call_id or made_id(head.seed, 0, position)
    return _Item("custom" if kind == "custom" else "function", call.name, call_id)


def _list_customs(head: AnswerHead) -> frozenset[str]:
    """Return the names of the caller's custom tools: elsewhere they were offered as functions."""
    tools = map(as_object, as_list(head.body.get("tools")))
    names = (as_text(tool.get("name")) for tool in tools if tool.get("type") == "custom")
    return frozenset(name for name in names if name is not None)


# --- the form -------------------------------------------------------------------------------------


def _write_response(
    said: Sequence[tuple[_Item, str]], answer: Answer, ending: Ending, head: AnswerHead
) -> dict[str, JSON]:
    reason = "max_output_tokens" if ending == "length" else None
    states = ["completed"] * len(said)
    if reason is not None and states:
        states[-1] = "incomplete"
    response: dict[str, JSON] = {
        "id": _make_id("resp", head),
        "object": "response",
        "created_at": head.created_s,
        "status": "completed" if reason is None else "incomplete",
        "completed_at": head.created_s if reason is None else None,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": head.model,
        "output": [
            _write_item(item, place, text, state, head)
            for place, ((item, text), state) in enumerate(zip(said, states, strict=True))
        ],
        "service_tier": "default",
        **_repeat(head.body),
    }
    if answer.usage is not None:
        response["usage"] = _write_usage(answer.usage)
    return response


def _write_item(
    item: _Item, place: int, text: str, status: str, head: AnswerHead
) -> dict[str, JSON]:
    item_id = _make_id(_PREFIXES[item.kind], head, place)
    match item.kind:
        case "text" | "refusal":
            part: dict[str, JSON] = {"type": "refusal", "refusal": text}
            if item.kind == "text":
                part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
            return {
                "id": item_id,
                "type": "message",
                "status": status,
                "content": [part],
                "role": "assistant",
            }
        case "function":
            return {
                "id": item_id,
                "type": "function_call",
                "status": status,
                "arguments": text,
                "call_id": item.call_id,
                "name": item.name,
            }
        case "custom":
            return {
                "id": item_id,
                "type": "custom_tool_call",
                "status": status,
                "call_id": item.call_id,
                "input": text,
                "name": item.name,
            }


def _write_usage(usage: Usage) -> JSON:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _repeat(body: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return what a response repeats of its request, with the vendor's defaults."""
    given = {key: value for key, value in body.items() if value is not None}
    tools = (
        {**_FUNCTION, **tool} if tool.get("type") == "function" else tool
        for tool in map(as_object, as_list(given.get("tools")))
    )
    # A user is named only where one was, unlike the rest.
    user = {"user": given["user"]} if "user" in given else {}
    return {
        **{key: given.get(key, default) for key, default in _REPEATED.items()},
        "reasoning": _REASONING | as_object(given.get("reasoning")),
        "text": _TEXT | as_object(given.get("text")),
        "tools": list(tools),
        **user,
    }


def is_made_here(response_id: str) -> bool:
    """Say whether a response's id is one of ours; of the vendor's own one in 65,536 looks so."""
    return response_id.startswith(f"resp_{_OURS}")


def _make_id(prefix: str, head: AnswerHead, place: int = 0) -> str:
    digest = hashlib.sha256(f"{prefix}:{head.seed}:{place}".encode()).hexdigest()
    return f"{prefix}_{_OURS}{digest[: _ID_CHARS - len(_OURS)]}"
