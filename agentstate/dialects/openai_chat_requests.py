"""Requests in OpenAI's chat form, from and into the neutral form.

The messages are read and written by `openai_chat_messages.py`. What is written goes to OpenAI and,
as often, to what is called compatible with it: so nothing is sent that was not asked for, no null,
and no field that only OpenAI knows. Its reasoning models refuse whole fields; those are left out
and named, since an answer without them is better than none.
Source: OpenAI's OpenAPI document of August 2026, schema CreateChatCompletionRequest; which model
takes what: developers.openai.com/api/docs/guides/reasoning and latest-model, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from agentstate.dialects.call_arguments import FREE_TEXT
from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.dialects.neutral import Asked, Format, Offer, Pick, Receiver, Written
from agentstate.dialects.openai_chat_messages import read_turns, write_messages
from agentstate.dialects.openai_fields import UNCOUNTED, read_choices
from agentstate.ground.canonical import JSON, Number

# What needs no name in `unsaid`.
_READ = frozenset(
    ("model", "messages", "n", "tools", "functions", "tool_choice", "function_call",
     "parallel_tool_calls", "max_completion_tokens", "max_tokens", "temperature", "top_p", "top_k",
     "seed", "presence_penalty", "frequency_penalty", "stop", "response_format",
     "reasoning_effort", "verbosity",
     # These never matter to the answer.
     *UNCOUNTED, "prompt_cache_retention", "prompt_cache_options")
)  # fmt: skip
# What asks for nothing more than what comes anyway.
_DEFAULTS: dict[str, JSON] = {
    "logprobs": False, "top_logprobs": 0, "logit_bias": {}, "modalities": ["text"],
}  # fmt: skip

_PICKS: dict[str, Pick] = {
    "none": Pick("none"), "auto": Pick("auto"), "required": Pick("any"),
    "any": Pick("any"),  # Mistral's word
}  # fmt: skip
_WRITTEN_PICKS = {"auto": "auto", "any": "required", "none": "none"}
_TOOL_KEYS = frozenset(("type", "function", "custom", "cache_control"))
_FUNCTION_KEYS = frozenset(("name", "description", "parameters", "strict", "cache_control"))

_STOPS_MAX = 4
# The words for effort from less to more, and which of them a model takes, by provider ('' = any)
# and the beginning of its name. A model that is not here takes none.
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_EFFORTS_OF: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("openai", r"o[134]", ("low", "medium", "high")),
    ("openai", r"gpt-5(?![.]|-chat)", ("minimal", "low", "medium", "high")),
    ("openai", r"gpt-5[.]", ("none", "low", "medium", "high", "xhigh")),
    ("gemini", r"gemini-(2[.]5|[3-9])", ("low", "medium", "high")),
    ("", r"(.*/)?gpt-oss", ("low", "medium", "high")),
)
_REASONS = re.compile(r"o[134]|gpt-5(?!-chat)")
_REFUSED_BY_REASONING = frozenset(
    ("temperature", "top_p", "presence_penalty", "frequency_penalty", "stop")
)
# Google's compatible endpoint knows no such names.
_REFUSED_BY_GEMINI = frozenset(("presence_penalty", "frequency_penalty", "seed"))
_NO_PARALLEL = re.compile(r"o[134]")
# From this one on OpenAI wants effort and tools together in its Responses form only.
_NO_EFFORT_BESIDE_TOOLS = re.compile(r"gpt-5[.]([4-9]|\d\d)")


# Reading


def read_request(body: Mapping[str, JSON]) -> Asked:
    """Read a request, as `OpenAIChat.read_ask` has checked it, into neutral form."""
    fields = _Fields(body)
    fields.unsaid += [
        key
        for key, value in body.items()
        if key not in _READ and value is not None and value != _DEFAULTS.get(key)
    ]
    turns = read_turns(body.get("messages"), fields.unsaid)
    pick, tools = _read_pick(fields, _read_tools(fields))
    in_parallel = fields.flag("parallel_tool_calls")
    if in_parallel is None and _is_legacy(body):
        in_parallel = False  # that form has room for one call
    effort = fields.text("reasoning_effort")
    asked = Asked(
        model=as_text(body.get("model")) or "",
        turns=turns,
        streams=body.get("stream") is True,
        tools=tools,
        pick=pick,
        calls_in_parallel=in_parallel,
        output_tokens_max=fields.count("max_completion_tokens", "max_tokens"),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        top_k=fields.number("top_k"),
        seed=fields.number("seed"),
        presence_penalty=fields.number("presence_penalty"),
        frequency_penalty=fields.number("frequency_penalty"),
        stop=_read_stop(fields),
        format=_read_format(fields),
        effort="xhigh" if effort == "max" else effort,  # the neutral words end there
        verbosity=fields.text("verbosity"),
        choices=read_choices(body.get("n")),
        user=as_text(body.get("user")) or as_text(body.get("safety_identifier")),
    )
    return replace(asked, unsaid=tuple(dict.fromkeys(fields.unsaid)))


class _Fields:
    """Reads fields of a body by their type; what is of another one is named in `unsaid`."""

    __slots__ = ("_body", "unsaid")

    def __init__(self, body: Mapping[str, JSON]) -> None:
        self._body = body
        self.unsaid: list[str] = []

    def get(self, key: str) -> JSON:
        return self._body.get(key)

    def items(self, key: str) -> list[JSON]:
        value = self._body.get(key)
        if isinstance(value, list):
            return value
        self._note(key)
        return []

    def text(self, key: str) -> str | None:
        value = self._body.get(key)
        if isinstance(value, str):
            return value
        self._note(key)
        return None

    def flag(self, key: str) -> bool | None:
        value = self._body.get(key)
        if isinstance(value, bool):
            return value
        self._note(key)
        return None

    def number(self, key: str) -> JSON:
        value = self._body.get(key)
        if _is_number(value):
            return value
        self._note(key)
        return None

    def count(self, *keys: str) -> int | None:
        """Read the first of these keys that says something as a whole number, however written."""
        key = next((key for key in keys if self._body.get(key) is not None), keys[0])
        value: object = self._body.get(key)
        if isinstance(value, Number) and float(value).is_integer():
            value = int(float(value))
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self._note(key)
        return None

    def _note(self, key: str) -> None:
        if self._body.get(key) is not None:
            self.unsaid.append(key)


def _is_number(value: object) -> bool:
    return isinstance(value, int | Number) and not isinstance(value, bool)


def _is_legacy(body: Mapping[str, JSON]) -> bool:
    return bool(body.get("functions")) and not body.get("tools")


def _read_tools(fields: _Fields) -> tuple[Offer, ...]:
    offers: list[Offer] = []
    for at, value in enumerate(fields.items("tools")):
        tool, path = as_object(value), f"tools[{at}]"
        kind = as_text(tool.get("type")) or "function"
        said = as_object(tool.get(kind)) if kind in ("function", "custom") else {}
        if not said:
            fields.unsaid.append(path)
            continue
        offers.append(_read_offer(said, tool.get("cache_control"), is_custom=kind == "custom"))
        known = _FUNCTION_KEYS
        if kind == "custom" and as_object(said.get("format")).get("type") in (None, "text"):
            known |= {"format"}
        fields.unsaid += [f"{path}.{key}" for key in tool if key not in _TOOL_KEYS]
        fields.unsaid += [f"{path}.{kind}.{key}" for key in said if key not in known]
    for at, value in enumerate(fields.items("functions")):
        if isinstance(value, dict):
            offers.append(_read_offer(value, None, is_custom=False))
        else:
            fields.unsaid.append(f"functions[{at}]")
    return tuple(offers)


def _read_offer(said: dict[str, JSON], cache: JSON, *, is_custom: bool) -> Offer:
    is_strict = said.get("strict")
    return Offer(
        as_text(said.get("name")) or "",
        as_text(said.get("description")),
        said.get("parameters"),
        is_strict if isinstance(is_strict, bool) else None,
        is_custom,
        cache or said.get("cache_control"),
    )


def _read_pick(fields: _Fields, tools: tuple[Offer, ...]) -> tuple[Pick | None, tuple[Offer, ...]]:
    """Return which tools are to be called, and the tools that are left to choose from."""
    key = "tool_choice" if fields.get("tool_choice") is not None else "function_call"
    value = fields.get(key)
    if isinstance(value, str) and value in _PICKS:
        return _PICKS[value], tools
    choice = as_object(value)
    kind = as_text(choice.get("type"))
    if kind == "allowed_tools":
        allowed = as_object(choice.get(kind))
        names = {_name_of(as_object(tool)) for tool in as_list(allowed.get("tools"))}
        left = tuple(offer for offer in tools if offer.name in names)
        mode = _PICKS.get(as_text(allowed.get("mode")) or "")
        if left and mode is not None:
            return mode, left
    elif name := _name_of(choice):
        return Pick("named", name), tools
    if value is not None:
        fields.unsaid.append(key)
    return None, tools


def _name_of(tool: dict[str, JSON]) -> str:
    """Return the name in a reference to a tool; the legacy form has it bare. '' = none."""
    kind = as_text(tool.get("type"))
    said = tool if kind is None else as_object(tool.get(kind))
    return as_text(said.get("name")) or ""


def _read_stop(fields: _Fields) -> tuple[str, ...]:
    value = fields.get("stop")
    stops = value if isinstance(value, list) else [value]
    found = tuple(stop for stop in stops if isinstance(stop, str) and stop)
    if len(found) < len(stops) and value is not None:
        fields.unsaid.append("stop")
    return found


def _read_format(fields: _Fields) -> Format | None:
    value = fields.get("response_format")
    wanted = as_object(value)
    match wanted.get("type"):
        case "json_object":
            return Format()
        case "json_schema":
            said = as_object(wanted.get("json_schema"))
            is_strict = said.get("strict")
            return Format(
                said.get("schema"),
                as_text(said.get("name")),
                as_text(said.get("description")),
                is_strict if isinstance(is_strict, bool) else None,
            )
        case "text":
            return None
    if value is not None:
        fields.unsaid.append("response_format")
    return None


# Writing


def write_request(asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
    """Write a request for a receiver; `dropped` names what it will not get."""
    dropped = list(asked.unsaid)
    is_openai = receiver.provider == "openai"
    messages = write_messages(asked.turns, receiver, dropped)
    body: dict[str, JSON] = {"model": receiver.model, "messages": messages}
    if asked.streams:
        # Always with the usage: it is what the call is booked by.
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body |= _write_tools(asked, receiver, dropped)
    if asked.output_tokens_max is not None:
        body["max_completion_tokens" if is_openai else "max_tokens"] = asked.output_tokens_max
    body |= _write_sampling(asked, receiver, dropped)
    if asked.format is not None:
        body["response_format"] = _write_format(asked.format)
    body |= _write_effort(asked, receiver, dropped)
    if asked.choices > 1:
        body["n"] = asked.choices
    if asked.user is not None and is_openai:
        body["user"] = asked.user
    return Written(body, tuple(dict.fromkeys(dropped)))


def _write_tools(asked: Asked, receiver: Receiver, dropped: list[str]) -> dict[str, JSON]:
    """Write the tools and what is said of calling them, which without tools is refused."""
    pick = asked.pick
    if not asked.tools:
        if pick is not None and pick.mode in ("any", "named"):
            dropped.append("tool choice")
        return {}
    if any(offer.cache for offer in asked.tools):
        dropped.append("cache markers")
    is_openai = receiver.provider == "openai"
    fields: dict[str, JSON] = {"tools": [_write_tool(offer, is_openai) for offer in asked.tools]}
    if pick is not None and pick.mode == "named":
        is_custom = any(offer.is_custom for offer in asked.tools if offer.name == pick.name)
        kind = "custom" if is_custom and is_openai else "function"
        fields["tool_choice"] = {"type": kind, kind: {"name": pick.name}}
    elif pick is not None:
        fields["tool_choice"] = _WRITTEN_PICKS[pick.mode]
    if asked.calls_in_parallel is not None:
        if not (is_openai and _NO_PARALLEL.match(receiver.model)):
            fields["parallel_tool_calls"] = asked.calls_in_parallel
        elif not asked.calls_in_parallel:
            dropped.append("parallel_tool_calls")
    return fields


def _write_tool(offer: Offer, is_openai: bool) -> JSON:
    said: dict[str, JSON] = {"name": offer.name}
    if offer.description is not None:
        said["description"] = offer.description
    if offer.is_custom and is_openai:
        return {"type": "custom", "custom": said}
    # OpenAI refuses an object that does not list its properties, Mistral a tool without a schema.
    blank: dict[str, JSON] = {"type": "object", "properties": {}}
    said["parameters"] = FREE_TEXT if offer.is_custom else blank | as_object(offer.schema)
    if offer.is_strict:
        said["strict"] = True  # false is what everybody takes it for
    return {"type": "function", "function": said}


def _write_sampling(asked: Asked, receiver: Receiver, dropped: list[str]) -> dict[str, JSON]:
    fields: dict[str, JSON] = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
        "stop": list(asked.stop[:_STOPS_MAX]) or None,
        "seed": asked.seed,
    }
    fields = {key: value for key, value in fields.items() if value is not None}
    refused = _refused(receiver)
    if "temperature" in refused and _is_one(fields.get("temperature")):
        del fields["temperature"]  # it says what is so anyway
    dropped += [key for key in fields if key in refused]
    if asked.top_k is not None:
        dropped.append("top_k")
    if len(asked.stop) > _STOPS_MAX and "stop" not in refused:
        dropped.append(f"stop[{_STOPS_MAX}:]")
    return {key: value for key, value in fields.items() if key not in refused}


def _refused(receiver: Receiver) -> frozenset[str]:
    """Return which fields of sampling a receiver answers with a 400."""
    if receiver.provider == "openai" and _REASONS.match(receiver.model):
        return _REFUSED_BY_REASONING
    return _REFUSED_BY_GEMINI if receiver.provider == "gemini" else frozenset()


def _is_one(value: object) -> bool:
    return isinstance(value, int | float | Number) and float(value) == 1


def _write_format(format_: Format) -> JSON:
    if format_.schema is None:
        return {"type": "json_object"}
    said: dict[str, JSON] = {"name": format_.name or "answer"}
    if format_.description is not None:
        said["description"] = format_.description
    said["schema"] = format_.schema
    if format_.is_strict is not None:
        said["strict"] = format_.is_strict
    return {"type": "json_schema", "json_schema": said}


def _write_effort(asked: Asked, receiver: Receiver, dropped: list[str]) -> dict[str, JSON]:
    """Write how much the model is to think and to say, as near as it can be told."""
    fields: dict[str, JSON] = {}
    is_openai = receiver.provider == "openai"
    if asked.effort is not None:
        effort = _nearest_effort(asked.effort, receiver)
        if asked.tools and is_openai and _NO_EFFORT_BESIDE_TOOLS.match(receiver.model):
            effort = None
        if effort is not None:
            fields["reasoning_effort"] = effort
        if effort != asked.effort:
            dropped.append("reasoning effort" if effort is None else f"effort {asked.effort}")
    if asked.verbosity is not None:
        if is_openai and receiver.model.startswith("gpt-5"):
            fields["verbosity"] = asked.verbosity
        else:
            dropped.append("verbosity")
    return fields


def _nearest_effort(effort: str, receiver: Receiver) -> str | None:
    """Return the word a model takes that is nearest to `effort`; None = it takes none."""
    for provider, beginning, words in _EFFORTS_OF:
        if provider in ("", receiver.provider) and re.match(beginning, receiver.model):
            if effort in words or effort not in _EFFORTS:
                return effort  # a word nobody here knows is the upstream's to judge
            wanted = _EFFORTS.index(effort)
            return min(words, key=lambda word: abs(_EFFORTS.index(word) - wanted))
    return None
