"""Requests in OpenAI's Responses form, from and into the neutral form.

The input is read and written by `openai_responses_input.py`. What a request goes on from
(`previous_response_id`, `conversation`, `prompt`) cannot be said elsewhere: it is named like the
rest, and whoever translates has to have put in what it stands for, or must not. What is written is
never stored, since nobody could refer to it; and it says that functions are not strict wherever
the caller did not, since in this form alone the default is that they are.
Source: OpenAI's OpenAPI document of August 2026, schema CreateResponse; which model takes what:
developers.openai.com/api/docs/guides/reasoning and latest-model, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from agentstate.dialects.call_arguments import FREE_TEXT
from agentstate.dialects.lenient import as_integer, as_list, as_object, as_text
from agentstate.dialects.neutral import (
    Asked,
    Format,
    Offer,
    Pick,
    Receiver,
    Written,
    map_ids,
    safe_id,
)
from agentstate.dialects.openai_fields import UNCOUNTED
from agentstate.dialects.openai_responses_input import read_turns, write_input
from agentstate.ground.canonical import JSON, Number

# Read below, or never of weight for an answer; of all else what says something is named.
_KNOWN = UNCOUNTED | {
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls",
    "max_output_tokens", "temperature", "top_p", "text", "reasoning",
    "prompt_cache_retention", "prompt_cache_options",
}  # fmt: skip
# What asks for nothing more than what comes anyway, beside what is empty or false.
_DEFAULTS: dict[str, JSON] = {"truncation": "disabled"}
_TOOL_KEYS = {
    "function": ("type", "name", "description", "parameters", "strict"),
    "custom": ("type", "name", "description"),
}
_FORMAT_KEYS = ("type", "name", "description", "schema", "strict")

_PICKS: dict[str, Pick] = {"none": Pick("none"), "auto": Pick("auto"), "required": Pick("any")}
_MODES = {"auto": "auto", "any": "required", "none": "none"}

_OUTPUT_TOKENS_MIN = 16  # fewer are refused
_USER_CHARS_MAX = 64  # longer ones are refused; Claude Code's is
_NO_ARGUMENTS: JSON = {"type": "object", "properties": {}}
_FORMAT_NAME = "answer"  # it has to have one

# OpenAI's models, by the last part of their name. Those that think refuse what steers sampling
# unless they are told not to think; the others refuse to be told how much to think or to say.
_THINKS = re.compile(r"(?:o\d|gpt-(?:[5-9]|\d\d)|codex-|computer-use-)(?!.*-chat)")
_CHATS = re.compile(r"gpt-[34]|chatgpt-|gpt-.*-chat")


# --- reading --------------------------------------------------------------------------------------


def read_request(body: Mapping[str, JSON]) -> Asked:
    """Read a request, as `OpenAIResponses.read_ask` has checked it, into neutral form."""
    unsaid: list[str] = []
    turns = read_turns(body, unsaid)
    pick, allowed = _read_pick(body.get("tool_choice"), unsaid)
    tools = _read_tools(as_list(body.get("tools")), unsaid)
    text, reasoning = as_object(body.get("text")), as_object(body.get("reasoning"))
    effort = as_text(reasoning.get("effort"))
    in_parallel = body.get("parallel_tool_calls")
    limit = body.get("max_output_tokens")
    form = _read_format(as_object(text.get("format")), unsaid)
    _name_rest(text, ("format", "verbosity"), "text.", unsaid)
    _name_rest(reasoning, ("effort",), "reasoning.", unsaid)
    _name_rest(body, _KNOWN, "", unsaid)
    if limit is not None and as_integer(limit) is None:
        unsaid.append("max_output_tokens")
    return Asked(
        model=as_text(body.get("model")) or "",
        turns=turns,
        streams=body.get("stream") is True,
        tools=tuple(tool for tool in tools if allowed is None or tool.name in allowed),
        pick=pick,
        calls_in_parallel=in_parallel if isinstance(in_parallel, bool) else None,
        output_tokens_max=as_integer(limit),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        format=form,
        # The neutral words end there; the most is the most.
        effort="xhigh" if effort == "max" else effort,
        verbosity=as_text(text.get("verbosity")),
        user=as_text(body.get("user")) or as_text(body.get("safety_identifier")),
        unsaid=tuple(dict.fromkeys(unsaid)),
    )


def _name_rest(
    fields: Mapping[str, JSON], known: Iterable[str], path: str, unsaid: list[str]
) -> None:
    """Name what else the fields say; what is empty or the default says nothing."""
    unsaid += [
        f"{path}{key}"
        for key, value in fields.items()
        if key not in known and value and value != _DEFAULTS.get(key)
    ]


def _read_tools(tools: list[JSON], unsaid: list[str]) -> list[Offer]:
    """Read the tools that the agent runs; those of the provider's have no place elsewhere."""
    offers: list[Offer] = []
    for at, fields in enumerate(map(as_object, tools)):
        kind, name = as_text(fields.get("type")) or "", as_text(fields.get("name"))
        if kind not in _TOOL_KEYS or name is None:
            unsaid.append(f"tools[{at}]")
            continue
        strict = fields.get("strict")
        is_free = as_object(fields.get("format")).get("type") == "text"  # which it is anyway
        known = (*_TOOL_KEYS[kind], "format") if is_free else _TOOL_KEYS[kind]
        _name_rest(fields, known, f"tools[{at}].", unsaid)
        offers.append(
            Offer(
                name,
                as_text(fields.get("description")),
                fields.get("parameters"),
                strict if isinstance(strict, bool) else None,
                is_custom=kind == "custom",
            )
        )
    return offers


def _read_pick(choice: JSON, unsaid: list[str]) -> tuple[Pick | None, frozenset[str] | None]:
    """Return (what must be called, what may be); None = that was not said."""
    if choice is None:
        return None, None
    if isinstance(choice, str) and choice in _PICKS:
        return _PICKS[choice], None
    fields = as_object(choice)
    name = as_text(fields.get("name"))
    match fields.get("type"):
        case "function" | "custom" if name is not None:
            return Pick("named", name), None
        case "allowed_tools":
            # Offering no others says the same.
            mode = as_text(fields.get("mode")) or "auto"
            tools = (as_object(tool).get("name") for tool in as_list(fields.get("tools")))
            names = frozenset(tool for tool in tools if isinstance(tool, str))
            return _PICKS.get(mode, Pick("auto")), names
    unsaid.append("tool_choice")
    return None, None


def _read_format(fields: dict[str, JSON], unsaid: list[str]) -> Format | None:
    match fields.get("type"):
        case None | "text":
            return None
        case "json_object":
            return Format()
        case "json_schema" if isinstance(fields.get("schema"), dict):
            _name_rest(fields, _FORMAT_KEYS, "text.format.", unsaid)
            strict = fields.get("strict")
            return Format(
                fields["schema"],
                as_text(fields.get("name")),
                as_text(fields.get("description")),
                strict if isinstance(strict, bool) else None,
            )
    unsaid.append("text.format")
    return None


# --- writing --------------------------------------------------------------------------------------


def write_request(asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
    """Write a request; see `neutral.Translates`. Nothing of it is impossible to write."""
    dropped = list(asked.unsaid)
    model = receiver.model.rpartition("/")[2].removeprefix("ft:")
    # Custom tools are OpenAI's own: elsewhere they are functions with one argument.
    has_custom = receiver.provider == "openai"
    body: dict[str, JSON] = {"model": receiver.model}
    body |= write_input(map_ids(asked.turns, safe_id), has_custom, dropped)
    body |= _write_tools(asked, has_custom, dropped)
    body |= _write_text(asked, model, dropped)
    if asked.output_tokens_max is not None:
        body["max_output_tokens"] = max(asked.output_tokens_max, _OUTPUT_TOKENS_MIN)
        if asked.output_tokens_max < _OUTPUT_TOKENS_MIN:
            dropped.append(f"an output limit below {_OUTPUT_TOKENS_MIN}")
    sampling = {"temperature": asked.temperature, "top_p": asked.top_p}
    said = {key: value for key, value in sampling.items() if value is not None}
    if _THINKS.match(model) and asked.effort != "none":
        dropped += said
    else:
        body |= said
    if asked.user is not None and len(asked.user) <= _USER_CHARS_MAX:
        body["user"] = asked.user
    body["store"] = False
    if asked.streams:
        body["stream"] = True
    dropped += _list_unknown(asked)
    return Written(body, tuple(dict.fromkeys(dropped)))


def _write_tools(asked: Asked, has_custom: bool, dropped: list[str]) -> dict[str, JSON]:
    if not asked.tools:
        if asked.pick is not None and asked.pick.mode in ("any", "named"):
            dropped.append("tool choice")
        return {}
    if any(tool.cache is not None for tool in asked.tools):
        dropped.append("cache markers")
    written: dict[str, JSON] = {"tools": [_write_tool(tool, has_custom) for tool in asked.tools]}
    if asked.pick is not None:
        written["tool_choice"] = _write_pick(asked.pick, asked.tools, has_custom)
    if asked.calls_in_parallel is not None:
        written["parallel_tool_calls"] = asked.calls_in_parallel
    return written


def _write_tool(tool: Offer, has_custom: bool) -> JSON:
    is_custom = tool.is_custom and has_custom
    written: dict[str, JSON] = {"type": "custom" if is_custom else "function", "name": tool.name}
    if tool.description is not None:
        written["description"] = tool.description
    if not is_custom:
        schema = FREE_TEXT if tool.is_custom else tool.schema
        written["parameters"] = _NO_ARGUMENTS if schema is None else schema
        written["strict"] = tool.is_strict is True
    return written


def _write_pick(pick: Pick, tools: Iterable[Offer], has_custom: bool) -> JSON:
    if pick.mode != "named":
        return _MODES[pick.mode]
    is_custom = has_custom and any(tool.is_custom for tool in tools if tool.name == pick.name)
    return {"type": "custom" if is_custom else "function", "name": pick.name}


def _write_text(asked: Asked, model: str, dropped: list[str]) -> dict[str, JSON]:
    """Write what the text must be, how long, and how much thought goes before it."""
    written: dict[str, JSON] = {}
    text: dict[str, JSON] = {}
    if asked.format is not None:
        text["format"] = _write_format(asked.format)
    is_chat = _CHATS.match(model) is not None
    if asked.verbosity is not None and not is_chat:
        text["verbosity"] = asked.verbosity
    if text:
        written["text"] = text
    if asked.effort is not None and not is_chat:
        written["reasoning"] = {"effort": asked.effort}
    if is_chat:
        dropped += ["verbosity"] if asked.verbosity is not None else []
        # What does not think does as it is told.
        dropped += ["reasoning effort"] if asked.effort not in (None, "none") else []
    return written


def _write_format(form: Format) -> JSON:
    if form.schema is None:
        return {"type": "json_object"}
    written: dict[str, JSON] = {"type": "json_schema", "name": form.name or _FORMAT_NAME}
    if form.description is not None:
        written["description"] = form.description
    written["schema"] = form.schema
    if form.is_strict is not None:
        written["strict"] = form.is_strict
    return written


def _list_unknown(asked: Asked) -> list[str]:
    """Name what the form has no word for; penalties of 0, which many clients send, ask nothing."""
    return [
        name
        for name, says in (
            ("top_k", asked.top_k is not None),
            ("seed", asked.seed is not None),
            ("presence_penalty", _weighs(asked.presence_penalty)),
            ("frequency_penalty", _weighs(asked.frequency_penalty)),
            ("stop", bool(asked.stop)),
            ("n", asked.choices > 1),
        )
        if says
    ]


def _weighs(penalty: JSON) -> bool:
    if isinstance(penalty, int | float | Number):
        return float(penalty) != 0
    return penalty is not None
