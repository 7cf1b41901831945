"""A model that fails three calls in ten, in every form, and agents of real SDKs that work with it.

The model tells from the history which turn it is at: at each it calls the tool, at every fifth
twice at once, and at the last it says so in a text. A call's id names its turn. Whatever form asks,
the history that reaches the model must be the one that the agent lived through.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tests.dialects import samples_anthropic as anthropic
from tests.dialects import samples_responses as responses
from tests.dialects.samples import (
    CHAT_DONE,
    call_delta,
    chat_body,
    chat_chunk,
    chat_message,
    chat_usage_chunk,
)
from tests.e2e.fault_rig import FaultyUpstream
from tests.e2e.faults import SEEN, UNANSWERED, UNSEEN, Fault
from tests.e2e.forms import CHAT, MESSAGES, RESPONSES, Form
from tests.helpers.upstream import Received, Reply, json_reply, sse_reply

SEED = 291  # one of those with which another model stands in for each
STEPS = 50
FAULTS = 0.3  # of all calls
TOKENS_SAID = 7  # in each answer, in every form's sample
TOOL = "note"
SCHEMA = {"type": "object", "properties": {"turn": {"type": "integer"}, "mark": {"type": "string"}}}
OPENING = "Note each turn."
# How long nothing is said is settled by time limits, which are tried elsewhere: here all settings
# are as they come. The date of a 429 lies in the future, and waiting is tried elsewhere as well.
_KINDS = [
    fault for fault in (*UNSEEN, *SEEN) if not fault.is_slow and not fault.name.startswith("429")
]
_BY_PATH = {form.path: form for form in (CHAT, MESSAGES, RESPONSES)}


class Noted(NamedTuple):
    """A tool call of the history, with what it gave."""

    id: str
    arguments: dict[str, Any]
    result: str


class Drawn(NamedTuple):
    """What became of one request."""

    turn: int
    form: str
    fault: str | None  # None = it was answered


@dataclass(frozen=True, slots=True)
class Lane:
    """One agent: by which form it asks, streaming or not, and what stands in for its model."""

    caller: Form
    streams: bool
    fallback: Form | None

    @property
    def name(self) -> str:
        """Its session, and the model it asks for."""
        kind = "stream" if self.streams else "whole"
        return f"{self.caller.name}-{kind}-{self.fallback.name if self.fallback else 'alone'}"


class UnreliableModel(FaultyUpstream):
    """Answers from the request alone, or fails: drawn for each model and form apart."""

    def __init__(self) -> None:
        super().__init__()
        self._chances: dict[str, random.Random] = {}
        self.drawn: dict[str, list[Drawn]] = {}  # by model
        self.histories: dict[str, list[tuple[int, list[Noted]]]] = {}  # (turn, ...), by model

    def reply_to(self, request: Received) -> Reply:
        form, ask = _BY_PATH[request.target], request.json()
        model, streams = ask["model"], ask.get("stream", False)
        history = HISTORIES[form.name](ask)
        turn = len({noted.arguments["turn"] for noted in history})
        with self._lock:
            key = f"{SEED} {model} {form.name}"
            chance = self._chances.setdefault(key, random.Random(key))
            fault = _draw(chance, form, streams=streams)
            self.asked.setdefault(model, []).append(request)
            self.histories.setdefault(model, []).append((turn, history))
            name = None if fault is None else fault.name
            self.drawn.setdefault(model, []).append(Drawn(turn, form.name, name))
        if fault is None:
            reply = ANSWERS[form.name](model, turn, streams=streams)
        else:
            reply = fault.make(form, model, streams)
        told = () if reply.status < 400 else ((b"retry-after", b"0"),)
        return replace(reply, headers=(*reply.headers, *told, (b"connection", b"close")))

    def faults(self) -> Counter[str]:
        """Return how often each kind of fault was drawn."""
        with self._lock:
            drawn = [each.fault for every in self.drawn.values() for each in every]
        return Counter(fault for fault in drawn if fault is not None)


_RESET = Fault("reset-unanswered", lambda form, model, streams: UNANSWERED, None, "", 502)


def _draw(chance: random.Random, form: Form, *, streams: bool) -> Fault | None:
    if chance.random() >= FAULTS:
        return None
    kinds = [each for each in _KINDS if streams in each.streams and form.name in each.forms]
    return chance.choice([_RESET, *kinds])


# --- what the model says --------------------------------------------------------------------------


def calls_of(turn: int) -> int:
    """Return how many calls are made at a turn; none at the last."""
    return 0 if turn == STEPS - 1 else 2 if turn % 5 == 4 else 1


def last_text(model: str) -> str:
    """Return what is said at the last turn."""
    return f"{model} has noted it all."


def _arguments(turn: int, place: int) -> str:
    return json.dumps({"turn": turn, "mark": f"{turn}.{place}"})


def _chat_answer(model: str, turn: int, *, streams: bool) -> Reply:
    calls = [
        {"id": f"call_{turn}_{place}", "type": "function",
         "function": {"name": TOOL, "arguments": _arguments(turn, place)}}
        for place in range(calls_of(turn))
    ]  # fmt: skip
    reason = "tool_calls" if calls else "stop"
    if not streams:
        message = chat_message(
            content=None if calls else last_text(model), **({"tool_calls": calls} if calls else {})
        )
        return json_reply(json.loads(chat_body({"message": message, "finish_reason": reason})))
    deltas: list[dict[str, Any]] = [] if calls else [{"content": last_text(model)}]
    for place, call in enumerate(calls):
        opening, rest = _halves(call["function"]["arguments"])
        pieces = call_delta(place, opening, call["id"], TOOL), call_delta(place, rest)
        deltas += [{"tool_calls": [piece]} for piece in pieces]
    begun = chat_chunk({"role": "assistant", "content": "" if not calls else None})
    chunks = (begun, *map(chat_chunk, deltas), chat_chunk({}, reason), chat_usage_chunk())
    return sse_reply((*chunks, CHAT_DONE))


def _messages_answer(model: str, turn: int, *, streams: bool) -> Reply:
    calls = [(f"toolu_{turn}_{place}", _arguments(turn, place)) for place in range(calls_of(turn))]
    reason = "tool_use" if calls else "end_turn"
    if not streams:
        blocks = [
            {"type": "tool_use", "id": call_id, "name": TOOL, "input": json.loads(text)}
            for call_id, text in calls
        ] or [{"type": "text", "text": last_text(model)}]
        return json_reply(json.loads(anthropic.body(*blocks, reason=reason, model=model)))
    events = [
        anthropic.call_block(place, *_halves(text), id=call_id, name=TOOL)
        for place, (call_id, text) in enumerate(calls)
    ] or [anthropic.text_block(0, last_text(model))]
    frames = [frame for each in events for frame in each]
    return sse_reply((anthropic.start(model=model), *frames, anthropic.end(reason), anthropic.STOP))


def _responses_answer(model: str, turn: int, *, streams: bool) -> Reply:
    items = [
        responses.call(
            place, id=f"fc_{turn}_{place}", call_id=f"call_{turn}_{place}", name=TOOL,
            arguments=_arguments(turn, place),
        )
        for place in range(calls_of(turn))
    ] or [responses.message(responses.part(last_text(model)))]  # fmt: skip
    if not streams:
        return json_reply(responses.response(*items, model=model))
    events = [
        event
        for place, item in enumerate(items)
        for event in (
            responses.call_events(place, item, *_halves(item["arguments"]))
            if item["type"] == "function_call"
            else responses.text_events(place, last_text(model))
        )
    ]
    return sse_reply(responses.stream(*events, responses.end(*items, model=model), model=model))


ANSWERS = {
    "chat": _chat_answer,
    "messages": _messages_answer,
    "responses": _responses_answer,
}


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


# --- what the model was told ----------------------------------------------------------------------


def _chat_history(ask: dict[str, Any]) -> list[Noted]:
    calls, results = list[tuple[str, str]](), dict[str, str]()
    for message in ask["messages"]:
        for call in message.get("tool_calls") or ():
            calls.append((call["id"], call["function"]["arguments"]))
        if message["role"] == "tool":
            results[message["tool_call_id"]] = _text_of(message["content"])
    return [Noted(id_, json.loads(text), results.pop(id_)) for id_, text in calls]


def _messages_history(ask: dict[str, Any]) -> list[Noted]:
    calls, results = list[tuple[str, dict[str, Any]]](), dict[str, str]()
    for message in ask["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                calls.append((block["id"], block["input"]))
            elif block["type"] == "tool_result":
                results[block["tool_use_id"]] = _text_of(block["content"])
    return [Noted(id_, arguments, results.pop(id_)) for id_, arguments in calls]


def _responses_history(ask: dict[str, Any]) -> list[Noted]:
    calls, results = list[tuple[str, str]](), dict[str, str]()
    for item in ask["input"]:
        if item.get("type") == "function_call":
            calls.append((item["call_id"], item["arguments"]))
        elif item.get("type") == "function_call_output":
            results[item["call_id"]] = _text_of(item["output"])
    return [Noted(id_, json.loads(text), results.pop(id_)) for id_, text in calls]


HISTORIES = {
    "chat": _chat_history,
    "messages": _messages_history,
    "responses": _responses_history,
}


def _text_of(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


# --- the agents -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Life:
    """What an agent went through."""

    turns: list[list[Noted]] = field(default_factory=list)  # of each, the calls that it made
    text: str = ""  # of the last turn
    spoiled: int = 0  # asked again by the agent itself, since its SDK gave up


class Said(NamedTuple):
    """One answer, as its SDK gives it."""

    text: str
    calls: list[tuple[str, str]]  # (id, arguments)
    turns: list[Any]  # what of it goes into the history


class ChatAgent:
    """Asks by the chat form with `openai`."""

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model
        self._messages: list[Any] = [{"role": "user", "content": OPENING}]
        function = {"name": TOOL, "description": "d", "parameters": SCHEMA}
        self._tools = [{"type": "function", "function": function}]

    def ask(self, *, streams: bool) -> Said:
        """Ask once."""
        asked = {"model": self._model, "messages": self._messages, "tools": self._tools}
        if not streams:
            message = self._client.chat.completions.create(**asked).choices[0].message
            calls = [(each.id, each.function.arguments) for each in message.tool_calls or ()]
            return self._said(message.content or "", calls)
        text, opened = "", dict[int, list[str]]()
        for chunk in self._client.chat.completions.create(**asked, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    kept = opened.setdefault(call.index, ["", ""])
                    kept[0] += call.id or ""
                    kept[1] += call.function.arguments or ""
        return self._said(text, [(call_id, arguments) for call_id, arguments in opened.values()])

    def _said(self, text: str, calls: list[tuple[str, str]]) -> Said:
        made = [
            {"id": call_id, "type": "function", "function": {"name": TOOL, "arguments": arguments}}
            for call_id, arguments in calls
        ]
        message = {"role": "assistant", "content": text or None}
        return Said(text, calls, [message | ({"tool_calls": made} if made else {})])

    def take(self, said: Said, results: Sequence[Noted]) -> None:
        """Append an answer and what its calls gave."""
        self._messages += said.turns
        for each in results:
            self._messages.append({"role": "tool", "tool_call_id": each.id, "content": each.result})


class MessagesAgent:
    """Asks by the messages form with `anthropic`."""

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model
        self._messages: list[Any] = [{"role": "user", "content": OPENING}]
        self._tools = [{"name": TOOL, "description": "d", "input_schema": SCHEMA}]

    def ask(self, *, streams: bool) -> Said:
        """Ask once."""
        asked = {
            "model": self._model, "max_tokens": 500, "messages": self._messages,
            "tools": self._tools,
        }  # fmt: skip
        if streams:
            with self._client.messages.stream(**asked) as stream:
                message = stream.get_final_message()
        else:
            message = self._client.messages.create(**asked)
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        calls = [
            (block["id"], json.dumps(block["input"]))
            for block in blocks
            if block["type"] == "tool_use"
        ]
        return Said(text, calls, [{"role": "assistant", "content": message.content}])

    def take(self, said: Said, results: Sequence[Noted]) -> None:
        """Append an answer and what its calls gave."""
        self._messages += said.turns
        blocks = [
            {"type": "tool_result", "tool_use_id": each.id, "content": each.result}
            for each in results
        ]
        self._messages.append({"role": "user", "content": blocks})


class ResponsesAgent:
    """Asks by the responses form with `openai`, and keeps the history itself."""

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model
        self._input: list[Any] = [{"role": "user", "content": OPENING}]
        self._tools = [
            {"type": "function", "name": TOOL, "description": "d", "parameters": SCHEMA,
             "strict": False}
        ]  # fmt: skip

    def ask(self, *, streams: bool) -> Said:
        """Ask once."""
        asked = {
            "model": self._model, "input": self._input, "tools": self._tools, "store": False
        }  # fmt: skip
        if streams:
            with self._client.responses.stream(**asked) as stream:
                response = stream.get_final_response()
        else:
            response = self._client.responses.create(**asked)
        calls = [
            (item.call_id, item.arguments)
            for item in response.output
            if item.type == "function_call"
        ]
        kept = ("type", "call_id", "name", "arguments")
        turns = [
            {key: getattr(item, key) for key in kept}
            for item in response.output
            if item.type == "function_call"
        ]
        return Said(response.output_text, calls, turns)

    def take(self, said: Said, results: Sequence[Noted]) -> None:
        """Append an answer and what its calls gave."""
        self._input += said.turns
        for each in results:
            self._input.append(
                {"type": "function_call_output", "call_id": each.id, "output": each.result}
            )


Agent = ChatAgent | MessagesAgent | ResponsesAgent
AGENTS: dict[str, type[Agent]] = {
    "chat": ChatAgent, "messages": MessagesAgent, "responses": ResponsesAgent
}  # fmt: skip
