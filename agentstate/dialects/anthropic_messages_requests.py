"""Requests of the Messages form, into neutral form and from it.

The conversation is in `anthropic_messages_history.py`; here is all that stands around it. What is
written suits the model that is asked, as far as its name tells (`anthropic_models.py`): parameters
that a model refuses would make a fallback fail on what nobody needs. Pure functions.
Source: platform.claude.com/docs/en/api/messages and the types of the `anthropic` package 2.14
(MessageCreateParams), November 2026.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from agentstate.dialects import anthropic_models
from agentstate.dialects.anthropic_messages_history import name_rest, read_turns, write_turns
from agentstate.dialects.anthropic_schemas import NO_ARGUMENTS, closed_schema, tool_schema
from agentstate.dialects.call_arguments import FREE_TEXT
from agentstate.dialects.lenient import as_integer, as_list, as_object, as_text
from agentstate.dialects.neutral import (
    Asked,
    Called,
    Format,
    Offer,
    Pick,
    Receiver,
    Turn,
    Written,
)
from agentstate.ground.canonical import JSON, Number, encode

# The version that every server of this form knows; the next one (2026-10-21) has no sampling
# parameters at all.
REQUEST_HEADERS = ((b"anthropic-version", b"2023-06-01"),)

# Where nobody says how long an answer may be and the form has to: every model gives that much.
_OUTPUT_TOKENS = 4096

_READ_KEYS = (
    "model", "messages", "system", "stream", "tools", "tool_choice", "max_tokens", "temperature",
    "top_p", "top_k", "stop_sequences", "output_config", "output_format", "metadata",
)  # fmt: skip
# They change what a call costs or where it is noted, not what is answered.
_IDLE_KEYS = ("service_tier", "diagnostics")
_TOOL_KEYS = ("type", "name", "description", "input_schema", "strict", "cache_control")
# Of a tool: how its arguments come, not which.
_IDLE_TOOL_KEYS = ("eager_input_streaming",)

# The API refuses what could be an address or a telephone number as the id of a user.
_USER_ID = re.compile(r"(?!\+?[\d\s().-]+\Z)[^@\s]{1,256}")

_JSON_ONLY = "Answer with one JSON object and nothing else."
_SCHEMA_ONLY = "Answer with JSON that fits this JSON schema and nothing else:\n"


def read_request(body: Mapping[str, JSON]) -> Asked:
    """Read a request into neutral form."""
    unsaid: list[str] = []
    turns = read_turns(body, unsaid)
    config = as_object(body.get("output_config"))
    choice = as_object(body.get("tool_choice"))
    one_call = choice.get("disable_parallel_tool_use")
    pick = _read_pick(choice, unsaid)
    tools = _read_tools(body, unsaid)
    wanted = _read_format(body, config, unsaid)
    name_rest(config, ("format", "effort"), "output_config", unsaid)
    name_rest(body, (*_READ_KEYS, *_IDLE_KEYS), "", unsaid)
    return Asked(
        model=as_text(body.get("model")) or "",
        turns=turns,
        streams=body.get("stream") is True,
        tools=tools,
        pick=pick,
        calls_in_parallel=not one_call if isinstance(one_call, bool) else None,
        output_tokens_max=as_integer(body.get("max_tokens")),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        top_k=body.get("top_k"),
        stop=tuple(
            text for text in as_list(body.get("stop_sequences")) if isinstance(text, str) and text
        ),
        format=wanted,
        effort=_read_effort(config),
        user=as_text(as_object(body.get("metadata")).get("user_id")),
        unsaid=tuple(unsaid),
    )


def _read_tools(body: Mapping[str, JSON], unsaid: list[str]) -> tuple[Offer, ...]:
    offers: list[Offer] = []
    for at, tool in enumerate(as_list(body.get("tools"))):
        fields = as_object(tool)
        name = as_text(fields.get("name"))
        if name is None or fields.get("type") not in (None, "custom"):
            unsaid.append(f"tools[{at}]")  # one that Anthropic runs or knows by its type
            continue
        name_rest(fields, (*_TOOL_KEYS, *_IDLE_TOOL_KEYS), f"tools[{at}]", unsaid)
        strict = fields.get("strict")
        offers.append(
            Offer(
                name,
                as_text(fields.get("description")),
                fields.get("input_schema"),
                strict if isinstance(strict, bool) else None,
                cache=fields.get("cache_control"),
            )
        )
    return tuple(offers)


def _read_pick(choice: dict[str, JSON], unsaid: list[str]) -> Pick | None:
    match choice:
        case {"type": "auto"}:
            return Pick("auto")
        case {"type": "any"}:
            return Pick("any")
        case {"type": "none"}:
            return Pick("none")
        case {"type": "tool", "name": str(name)}:
            return Pick("named", name)
    if choice:
        unsaid.append("tool_choice")
    return None


def _read_format(
    body: Mapping[str, JSON], config: dict[str, JSON], unsaid: list[str]
) -> Format | None:
    """Read the schema of the answer, in its place or in the one it had in the beta."""
    for path, value in (
        ("output_config.format", config.get("format")),
        ("output_format", body.get("output_format")),
    ):
        fields = as_object(value)
        if fields.get("type") == "json_schema":
            return Format(fields.get("schema"))
        if fields:
            unsaid.append(path)
    return None


def _read_effort(config: dict[str, JSON]) -> str | None:
    """Read the effort; its highest level is the highest of the neutral ones."""
    effort = as_text(config.get("effort"))
    return "xhigh" if effort == "max" else effort


def write_request(asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
    """Write a request for a model.

    Raises:
        BadRequest: as `write_turns`.
    """
    dropped = list(asked.unsaid)
    model = receiver.model
    system, messages = write_turns(asked.turns, model, dropped)
    config, instruction = _write_format(asked.format, model, dropped)
    if instruction:
        system.append({"type": "text", "text": instruction})
    if asked.effort is not None:
        if anthropic_models.takes_effort(model, asked.effort):
            config["effort"] = asked.effort
        else:
            dropped.append("reasoning effort")
    body: dict[str, JSON] = {
        "model": model,
        "max_tokens": _write_length(asked, receiver, dropped),
    }
    if system:
        is_plain = len(system) == 1 and "cache_control" not in system[0]
        body["system"] = system[0]["text"] if is_plain else [*system]
    body["messages"] = messages
    body |= _write_tools(asked, model, dropped)
    body |= _write_sampling(asked, model, dropped)
    if config:
        body["output_config"] = config
    if asked.user is not None and _USER_ID.fullmatch(asked.user):
        body["metadata"] = {"user_id": asked.user}
    if asked.streams:
        body["stream"] = True
    dropped += _list_unknown(asked)
    return Written(body, tuple(dict.fromkeys(dropped)))


def _write_length(asked: Asked, receiver: Receiver, dropped: list[str]) -> int:
    """Return how long the answer may be. More than a model can give is refused, not cut."""
    most = receiver.output_tokens_max or anthropic_models.most_output_tokens(receiver.model)
    if asked.output_tokens_max is None:
        return most or _OUTPUT_TOKENS
    if most is not None and asked.output_tokens_max > most:
        dropped.append("max tokens")
        return most
    return max(asked.output_tokens_max, 1)


def _write_format(
    wanted: Format | None, model: str, dropped: list[str]
) -> tuple[dict[str, JSON], str]:
    """Return (what goes into `output_config`, what the model is told in words)."""
    if wanted is None:
        return {}, ""
    if wanted.schema is None:
        return {}, _JSON_ONLY
    schema = closed_schema(wanted.schema) if anthropic_models.takes_format(model) else None
    if schema is None:
        dropped.append("response schema: told in words")
        return {}, _SCHEMA_ONLY + encode(wanted.schema).decode("ascii")
    if wanted.description and "description" not in schema:
        schema["description"] = wanted.description
    return {"format": {"type": "json_schema", "schema": schema}}, ""


def _write_tools(asked: Asked, model: str, dropped: list[str]) -> dict[str, JSON]:
    tools: list[JSON] = [
        _write_tool(at, tool, model, dropped) for at, tool in enumerate(asked.tools)
    ]
    if not tools:
        # A history with calls is refused where no tool is offered.
        tools = [{"name": name, "input_schema": NO_ARGUMENTS} for name in _names_of(asked.turns)]
        if asked.pick is not None and asked.pick.mode in ("any", "named"):
            dropped.append("tool choice")
        return {"tools": tools, "tool_choice": {"type": "none"}} if tools else {}
    choice = _write_pick(asked.pick)
    if asked.calls_in_parallel is False and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return {"tools": tools, "tool_choice": choice} if choice else {"tools": tools}


def _write_tool(at: int, tool: Offer, model: str, dropped: list[str]) -> JSON:
    written: dict[str, JSON] = {"name": tool.name}
    if tool.description is not None:
        written["description"] = tool.description
    schema = FREE_TEXT if tool.is_custom else tool_schema(tool.schema)
    if tool.is_strict:
        closed = closed_schema(schema) if anthropic_models.takes_format(model) else None
        if closed is None:
            dropped.append(f"tools[{at}]: strict")
        else:
            schema, written["strict"] = closed, True
    written["input_schema"] = schema
    if isinstance(tool.cache, dict) and tool.cache:
        written["cache_control"] = tool.cache
    return written


def _names_of(turns: Sequence[Turn]) -> list[str]:
    items = (item for turn in turns for item in turn.items)
    return list(dict.fromkeys(item.name for item in items if isinstance(item, Called)))


def _write_pick(pick: Pick | None) -> dict[str, JSON]:
    if pick is None:
        return {}
    return {"type": "tool", "name": pick.name} if pick.mode == "named" else {"type": pick.mode}


def _write_sampling(asked: Asked, model: str, dropped: list[str]) -> dict[str, JSON]:
    written: dict[str, JSON] = {}
    temperature = _as_number(asked.temperature)
    if temperature is not None:
        written["temperature"] = 1 if temperature > 1 else asked.temperature
        if temperature > 1:
            dropped.append("temperature")  # the form ends there
    if asked.top_p is not None:
        if temperature is None:
            written["top_p"] = asked.top_p
        else:
            dropped.append("top_p")  # one of the two, most models say
    if asked.top_k is not None:
        written["top_k"] = asked.top_k
    if not anthropic_models.takes_sampling(model):
        dropped += [key for key in written if key != "temperature" or temperature != 1]
        written = {}
    stop = [text for text in asked.stop if text.strip()]
    if len(stop) < len(asked.stop):
        dropped.append("stop")  # white space alone is refused
    if stop:
        written["stop_sequences"] = [*stop]
    return written


def _list_unknown(asked: Asked) -> list[str]:
    """Name what the form has no word for, where it would change the answer: penalties of 0, which
    many clients send, do not."""
    return [
        name
        for name, says in (
            ("temperature", asked.temperature is not None
             and _as_number(asked.temperature) is None),
            ("seed", asked.seed is not None),
            ("presence_penalty", _as_number(asked.presence_penalty) not in (None, 0)),
            ("frequency_penalty", _as_number(asked.frequency_penalty) not in (None, 0)),
            ("verbosity", asked.verbosity is not None),
            ("n", asked.choices > 1),
        )
        if says
    ]  # fmt: skip


def _as_number(value: JSON) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Number):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer that has no float
        return math.inf
