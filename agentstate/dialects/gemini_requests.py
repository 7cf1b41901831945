"""Requests in Gemini's own form, into neutral form and from it.

The conversation is in `gemini_contents.py` and schemas in `gemini_schema.py`; here is all that
stands around them. Model and stream are no part of the body: the path says them. Pure functions.
Source: ai.google.dev/api/generate-content, ai.google.dev/gemini-api/docs/thinking and .../openai,
and the types of the `google-genai` package 3.6, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from agentstate.dialects.call_arguments import FREE_TEXT
from agentstate.dialects.gemini_contents import camel, parts_of, read_turns, write_turns
from agentstate.dialects.gemini_schema import clean, schema_of
from agentstate.dialects.lenient import as_integer, as_list, as_object, as_text
from agentstate.dialects.neutral import Asked, Format, Offer, Pick, Receiver, Written
from agentstate.dialects.openai_fields import read_choices
from agentstate.ground.canonical import JSON, Number, encode

# What of a request is read, or never matters to the answer.
_READ = frozenset(
    ("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "model",
     "labels", "serviceTier", "store")
)  # fmt: skip
_NUMBERS = (
    "maxOutputTokens", "temperature", "topP", "topK", "seed", "presencePenalty", "frequencyPenalty",
)  # fmt: skip
_READ_CONFIG = frozenset(
    ("stopSequences", "candidateCount", "responseMimeType", "responseSchema", "responseJsonSchema",
     "thinkingConfig", "responseModalities")
)  # fmt: skip
_READ_FUNCTION = frozenset(("name", "description", "parameters", "parametersJsonSchema"))

_JSON_TYPE = "application/json"
# The most tokens of thought that still count as this effort.
# Source: ai.google.dev/gemini-api/docs/openai (thinking), November 2026.
_BUDGETS = ((0, "none"), (1024, "low"), (8192, "medium"))

_MODES = {"auto": "AUTO", "any": "ANY", "none": "NONE", "named": "ANY"}
_STOPS_MAX = 5
_NO_FORMAT_BESIDE_TOOLS = re.compile(r"gemini-[12]\b")
_JSON_ONLY = "Where you answer with text, answer with one JSON object and nothing else."
_SCHEMA_ONLY = (
    "Where you answer with text, answer with JSON that fits this schema and nothing else:\n"
)

# How a model is told how much to think, by the beginning of its name: in tokens, or in words. One
# that is not here is not told: those that do not think refuse it.
_BUDGETED: dict[str, JSON] = {
    "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576,
}  # fmt: skip
_LEVELED: dict[str, JSON] = {
    "none": "low", "minimal": "low", "low": "low", "medium": "medium", "high": "high",
    "xhigh": "high",
}  # fmt: skip
_EFFORTS: tuple[tuple[re.Pattern[str], str, dict[str, JSON]], ...] = (
    (re.compile(r"gemini-2\.5-flash"), "thinkingBudget", {"none": 0, **_BUDGETED}),
    (re.compile(r"gemini-2\.5"), "thinkingBudget", {"none": 128, **_BUDGETED}),
    (re.compile(r"gemini-[3-9]"), "thinkingLevel", _LEVELED),
)
_EXACT = frozenset(("low", "medium", "high"))


def read_request(body: Mapping[str, JSON], model: str, *, streams: bool) -> Asked:
    """Read a request; its path says which model it is for and whether it streams."""
    fields = camel(body)
    config = camel(fields.get("generationConfig"))
    unsaid = [key for key in fields if key not in _READ]
    turns = read_turns(fields, unsaid)
    tools = _read_tools(fields.get("tools"), unsaid)
    pick, allowed = _read_pick(fields.get("toolConfig"), unsaid)
    numbers = {key: config[key] for key in _NUMBERS if _is_number(config.get(key))}
    unsaid += [
        f"generationConfig.{key}"
        for key in config
        if key not in _READ_CONFIG and key not in numbers
    ]
    if _lower(config.get("responseModalities")) not in ([], ["text"]):
        unsaid.append("generationConfig.responseModalities")
    return Asked(
        model=model,
        turns=turns,
        streams=streams,
        tools=tuple(tool for tool in tools if not allowed or tool.name in allowed),
        pick=pick,
        output_tokens_max=_whole(numbers.get("maxOutputTokens")),
        temperature=numbers.get("temperature"),
        top_p=numbers.get("topP"),
        top_k=numbers.get("topK"),
        seed=numbers.get("seed"),
        presence_penalty=numbers.get("presencePenalty"),
        frequency_penalty=numbers.get("frequencyPenalty"),
        stop=tuple(each for each in as_list(config.get("stopSequences")) if isinstance(each, str)),
        format=_read_format(config, unsaid),
        effort=_read_effort(camel(config.get("thinkingConfig"))),
        choices=read_choices(config.get("candidateCount")),
        unsaid=tuple(dict.fromkeys(unsaid)),
    )


# --- tools and the rest ---------------------------------------------------------------------------


def _read_tools(value: JSON, unsaid: list[str]) -> list[Offer]:
    """Read the functions; what Google runs by itself nobody else can offer."""
    offers: list[Offer] = []
    for at, entry in enumerate(parts_of(value)):
        for key, each in camel(entry).items():
            if key != "functionDeclarations":
                unsaid.append(f"tools[{at}].{key}")
                continue
            for place, function in enumerate(parts_of(each)):
                fields = camel(function)
                path = f"tools[{at}].functionDeclarations[{place}]"
                unsaid += [f"{path}.{key}" for key in fields if key not in _READ_FUNCTION]
                name = as_text(fields.get("name"))
                if name is None:
                    unsaid.append(path)
                    continue
                offers.append(
                    Offer(name, as_text(fields.get("description")), schema_of(as_object(function)))
                )
    return offers


def _read_pick(value: JSON, unsaid: list[str]) -> tuple[Pick | None, frozenset[str]]:
    """Read which functions are to be called; of several that may be, the names as well."""
    fields = camel(value)
    unsaid += [f"toolConfig.{key}" for key in fields if key != "functionCallingConfig"]
    config = camel(fields.get("functionCallingConfig"))
    path = "toolConfig.functionCallingConfig"
    unsaid += [f"{path}.{key}" for key in config if key not in ("mode", "allowedFunctionNames")]
    names = [each for each in as_list(config.get("allowedFunctionNames")) if isinstance(each, str)]
    match (as_text(config.get("mode")) or "").upper():
        case "ANY" if len(names) == 1:
            return Pick("named", names[0]), frozenset()
        case "ANY":
            return Pick("any"), frozenset(names)
        case "NONE":
            return Pick("none"), frozenset()
        case "AUTO":
            return Pick("auto"), frozenset()
        case "VALIDATED":
            unsaid.append(f"{path}.mode")  # a call or a text, the call held to its schema
            return Pick("auto"), frozenset(names)
    return None, frozenset()


def _read_format(config: dict[str, JSON], unsaid: list[str]) -> Format | None:
    media_type = as_text(config.get("responseMimeType")) or ""
    key = "responseJsonSchema" if "responseJsonSchema" in config else "responseSchema"
    schema = config.get(key)
    if media_type == _JSON_TYPE:
        return Format(schema if key == "responseJsonSchema" else _read_schema(schema))
    if media_type not in ("", "text/plain"):
        unsaid.append("generationConfig.responseMimeType")
    if schema is not None:
        unsaid.append(f"generationConfig.{key}")
    return None


def _read_schema(schema: JSON) -> JSON:
    return schema_of({"parameters": schema})


def _read_effort(thinking: dict[str, JSON]) -> str | None:
    """Read how much to think, in words or in tokens. -1 leaves it to the model."""
    level = as_text(thinking.get("thinkingLevel"))
    if level is not None:
        return None if level.upper().endswith("UNSPECIFIED") else level.lower()
    budget = as_integer(thinking.get("thinkingBudget"))
    if budget is None or budget < 0:
        return None
    return next((effort for most, effort in _BUDGETS if budget <= most), "high")


def _is_number(value: object) -> bool:
    return isinstance(value, int | Number) and not isinstance(value, bool)


def _whole(value: object) -> int | None:
    return int(float(value)) if isinstance(value, int | Number) else None


def _lower(values: JSON) -> list[str]:
    return [each.lower() for each in as_list(values) if isinstance(each, str)]


# --- writing --------------------------------------------------------------------------------------


def request_path(model: str, *, streams: bool) -> tuple[str, str]:
    """Return (path, query) of a request."""
    name = quote(model.removeprefix("models/"), safe="")
    if streams:
        return f"/v1beta/models/{name}:streamGenerateContent", "alt=sse"
    return f"/v1beta/models/{name}:generateContent", ""


def write_request(asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
    """Write a request for a model.

    Raises:
        BadRequest: as `gemini_contents.write_turns`.
    """
    dropped = list(asked.unsaid)
    system, contents = write_turns(asked.turns, dropped)
    tools = _write_tools(asked, dropped)
    config = _write_config(asked, receiver.model, dropped)
    told = _write_format(asked.format, config, receiver.model, bool(tools), dropped)
    if told:
        system = [*system, {"text": told}]
    body: dict[str, JSON] = {"contents": contents}
    if system:
        body["systemInstruction"] = {"parts": system}
    body |= tools
    if config:
        body["generationConfig"] = config
    return Written(body, tuple(dict.fromkeys(dropped)))


def _write_tools(asked: Asked, dropped: list[str]) -> dict[str, JSON]:
    if asked.calls_in_parallel is False:
        dropped.append("parallel_tool_calls")
    pick = asked.pick
    if not asked.tools:
        if pick is not None and pick.mode in ("any", "named"):
            dropped.append("tool choice")  # refused where there is nothing to choose
        return {}
    functions: list[JSON] = [_write_tool(at, tool, dropped) for at, tool in enumerate(asked.tools)]
    written: dict[str, JSON] = {"tools": [{"functionDeclarations": functions}]}
    if pick is not None:
        calling: dict[str, JSON] = {"mode": _MODES[pick.mode]}
        if pick.mode == "named":
            calling["allowedFunctionNames"] = [pick.name]
        written["toolConfig"] = {"functionCallingConfig": calling}
    return written


def _write_tool(at: int, tool: Offer, dropped: list[str]) -> JSON:
    """Write a function; a tool that takes free text as one that takes an object with it."""
    written: dict[str, JSON] = {"name": tool.name}
    if tool.description:
        written["description"] = tool.description
    cleaned = clean(FREE_TEXT if tool.is_custom else tool.schema, is_object=True)
    if "properties" in cleaned.schema:
        written["parameters"] = cleaned.schema  # an object of nothing is refused
    dropped += [f"tools[{at}]: {keyword}" for keyword in cleaned.lost]
    if tool.is_strict:
        dropped.append(f"tools[{at}]: strict")
    if tool.cache is not None:
        dropped.append("cache markers")
    return written


def _write_config(asked: Asked, model: str, dropped: list[str]) -> dict[str, JSON]:
    seed = asked.seed
    if seed is not None and not _is_seed(seed):
        seed = None
        dropped.append("seed")
    stop: list[JSON] = [*asked.stop[:_STOPS_MAX]]
    if len(asked.stop) > _STOPS_MAX:
        dropped.append(f"stop[{_STOPS_MAX}:]")
    config: dict[str, JSON] = {
        "maxOutputTokens": asked.output_tokens_max,
        "temperature": asked.temperature,
        "topP": asked.top_p,
        "topK": asked.top_k,
        "seed": seed,
        "presencePenalty": asked.presence_penalty,
        "frequencyPenalty": asked.frequency_penalty,
        "stopSequences": stop or None,
        "candidateCount": asked.choices if asked.choices > 1 else None,
        "thinkingConfig": _write_effort(asked.effort, model, dropped),
    }
    if asked.verbosity is not None:
        dropped.append("verbosity")
    return {key: value for key, value in config.items() if value is not None}


def _is_seed(seed: JSON) -> bool:
    """Tell whether a seed is one of Google's, which have 32 bits."""
    number = as_integer(seed)
    return number is not None and -(2**31) <= number < 2**31


def _write_effort(effort: str | None, model: str, dropped: list[str]) -> JSON:
    """Write how much to think as the model takes it; None = it takes none, or nothing is said."""
    if effort is None:
        return None
    for pattern, key, values in _EFFORTS:
        if pattern.match(model) and effort in values:
            if effort not in _EXACT and values[effort] != 0:
                dropped.append(f"effort {effort}")  # the nearest one that there is
            return {key: values[effort]}
    dropped.append("reasoning effort")
    return None


def _write_format(
    wanted: Format | None,
    config: dict[str, JSON],
    model: str,
    has_tools: bool,
    dropped: list[str],
) -> str:
    """Put what the answer must be into `config`; return what the model is told in words, '' =
    nothing: older models take no format beside functions."""
    if wanted is None:
        return ""
    if has_tools and _NO_FORMAT_BESIDE_TOOLS.match(model):
        dropped.append("response schema: told in words")
        if wanted.schema is None:
            return _JSON_ONLY
        return _SCHEMA_ONLY + encode(wanted.schema).decode("ascii")
    config["responseMimeType"] = _JSON_TYPE
    if wanted.schema is not None:
        cleaned = clean(wanted.schema)
        config["responseSchema"] = cleaned.schema
        if wanted.description and "anyOf" not in cleaned.schema:
            cleaned.schema.setdefault("description", wanted.description)
        dropped += [f"response schema: {keyword}" for keyword in cleaned.lost]
    return ""
