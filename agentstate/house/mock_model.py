"""What the mock model says: a pure function of what it was asked, in neutral form.

It is not clever, only useful to develop against: prose that says it is a mock, calls of the tools
that the user's text names, JSON that fits a schema. It knows no dialect and no HTTP; its
counterpart `mock.py` reads requests into `Prompt` and renders the choices. The one invariant: the
same prompt gives the same choices, ids included, in every process.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentstate.ground.canonical import JSON, Number, digest, encode
from agentstate.ground.chat import Choice, ToolCall, Usage

TEXT_CHARS_MAX = 8192  # of the user's text that is searched for tool names; half from either end
QUOTE_CHARS_MAX = 100  # of what was said, repeated in the answer
CHARS_PER_TOKEN = 4  # the usual rule of thumb for English; usage is an estimate and says nothing
INVENTED_NODES_MAX = 2000  # values in one invented JSON: a schema that branches without end stops
INVENTED_DEPTH_MAX = 24  # OpenAI allows 10 levels in a strict schema (structured outputs guide)
INVENTED_ITEMS_MAX = 16  # array items, also where minItems asks for more
OPTIONAL_DEPTH_MAX = 3  # below it only required properties are filled: optional ones may recurse


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the request offers."""

    name: str
    parameters: JSON  # JSON schema of the arguments; None = it takes none


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as far as the mock model understands it."""

    seed: bytes  # digest of the request: ids come from it
    text: str  # what the user said last
    heard: str | None = None  # the last tool result since then; None = none
    called: frozenset[str] = frozenset()  # names of the tools called since then
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"  # auto | none | required | = and the name of the one to call
    calls_max: int = 8  # tool calls in one answer; 1 = the caller wants no parallel calls
    schema: JSON = None  # of the answer's text; None = prose
    tokens_max: int | None = None  # None = no limit
    input_tokens: int = 0


def think(prompt: Prompt, choices: int) -> tuple[Choice, ...]:
    """Return `choices` finished alternatives."""
    return tuple(_choose(prompt, index) for index in range(choices))


def count_usage(prompt: Prompt, choices: Iterable[Choice]) -> Usage:
    """Estimate the tokens of a prompt and its answer."""
    output = sum(
        count_tokens(choice.text) + sum(count_tokens(call.arguments) for call in choice.tool_calls)
        for choice in choices
    )
    return Usage(input_tokens=prompt.input_tokens, output_tokens=output)


def count_tokens(value: JSON) -> int:
    """Estimate the tokens of all text in a value; an inline image counts as a small one."""
    return math.ceil(_count_chars(value) / CHARS_PER_TOKEN)


def invent(schema: JSON, text: str) -> JSON:
    """Make a value that fits a JSON schema, with values out of `text` where it has some.

    `name=value` or `name: value` in the text fills the property of that name; else strings take
    quoted phrases, then words, and numbers take numbers, in order. `pattern`, `not` and
    `uniqueItems` are not honoured.
    """
    return _Inventor(schema, text).make(schema, "", 0)


def _choose(prompt: Prompt, index: int) -> Choice:
    calls = _call_tools(prompt, index)
    if calls:
        arguments = [_cut(call.arguments, prompt.tokens_max) for call in calls]
        if any(cut != call.arguments for cut, call in zip(arguments, calls, strict=True)):
            calls = [
                ToolCall(call.position, call.call_id, call.name, cut)
                for cut, call in zip(arguments, calls, strict=True)
            ]
            return Choice(index, tool_calls=tuple(calls), finish_reason="length")
        return Choice(index, tool_calls=tuple(calls), finish_reason="tool_calls")
    if prompt.schema is None:
        text = _prose(prompt, index)
    else:
        text = encode(invent(prompt.schema, prompt.text)).decode("ascii")
    cut = _cut(text, prompt.tokens_max)
    return Choice(index, text=cut, finish_reason="stop" if cut == text else "length")


def _prose(prompt: Prompt, index: int) -> str:
    said = f'You said: "{_quote(prompt.text)}".'
    if prompt.heard is not None:
        said = f'The tool said: "{_quote(prompt.heard)}". {said}'
    which = f" Alternative {index}." if index else ""
    return f"This is AgentState's mock model; no real model was asked. {said}{which}"


def _call_tools(prompt: Prompt, index: int) -> list[ToolCall]:
    return [
        ToolCall(
            position,
            f"call_{digest(prompt.seed, b'%d/%d' % (index, position)).hex()[:24]}",
            tool.name,
            _write_arguments(tool, prompt.text),
        )
        for position, tool in enumerate(_pick_tools(prompt)[: prompt.calls_max])
    ]


def _pick_tools(prompt: Prompt) -> list[Tool]:
    if prompt.tool_choice == "none":
        return []
    if prompt.tool_choice.startswith("="):
        return [tool for tool in prompt.tools if tool.name == prompt.tool_choice[1:]][:1]
    text = _window(prompt.text)
    found = [(at, tool) for tool in prompt.tools if (at := _find_name(tool.name, text)) is not None]
    named = [tool for _, tool in sorted(found, key=lambda pair: pair[0])]
    # Each named tool once: a loop that hands the results back comes to an end.
    fresh = [tool for tool in named if tool.name not in prompt.called]
    if prompt.tool_choice == "required":
        return fresh or named or list(prompt.tools[:1])
    return fresh


def _find_name(name: str, text: str) -> int | None:
    """Return where the text names the tool, with any separator between its words, or None."""
    words = [re.escape(word) for word in re.split(r"[\W_]+", name) if word]
    if not words:
        return None
    match = re.search(rf"(?<!\w){'[-_. ]?'.join(words)}(?!\w)", text, re.IGNORECASE)
    return None if match is None else match.start()


def _write_arguments(tool: Tool, text: str) -> str:
    """Take the JSON object that follows the tool's name in the text as it stands, else make one."""
    text = _window(text)
    start = text.lower().find(tool.name.lower())
    rest = text[start + len(tool.name) :].lstrip(" :(\n") if start >= 0 else ""
    if rest.startswith("{"):
        try:
            _, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            pass  # prose in braces, not arguments: make some
        else:
            return rest[:end]
    made = invent(tool.parameters, f"{text[:start]}{rest}" if start >= 0 else text)
    return encode(made if isinstance(made, dict) else {}).decode("ascii")


def _cut(text: str, tokens_max: int | None) -> str:
    return text if tokens_max is None else text[: tokens_max * CHARS_PER_TOKEN]


def _quote(text: str) -> str:
    flat = " ".join(_window(text).split())
    return flat if len(flat) <= QUOTE_CHARS_MAX else flat[: QUOTE_CHARS_MAX - 1] + "…"


def _window(text: str) -> str:
    """Return the two ends of a long text: people put what they ask first or last."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    half = TEXT_CHARS_MAX // 2
    return f"{text[:half]} {text[-half:]}"


def _count_chars(value: JSON) -> int:
    total = 0
    left: list[JSON] = [value]  # a stack of our own: a body may nest as deep as Python recurses
    while left:
        item = left.pop()
        if isinstance(item, str):
            # OpenAI counts an image of low detail as 85 tokens, whatever its bytes.
            total += 85 * CHARS_PER_TOKEN if item.startswith("data:image/") else len(item)
        elif isinstance(item, dict):
            total += sum(map(len, item))
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
        else:
            total += 1
    return total


class _Inventor:
    """Walks one schema; holds what is left of the text's words and of the node budget."""

    def __init__(self, root: JSON, text: str) -> None:
        self._root = root
        self._text = _window(text)
        self._nodes_left = INVENTED_NODES_MAX
        self._phrases = itertools.chain(_list_phrases(self._text), itertools.repeat("mock"))
        numbers = re.findall(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,6})?(?![\w.]*\w)", self._text)
        self._numbers = itertools.chain(map(float, numbers), itertools.repeat(1.0))
        self._given = {
            name.lower(): double or single or bare
            for name, double, single, bare in _ASSIGNMENT.findall(self._text)
        }

    def make(self, schema: JSON, name: str, depth: int) -> JSON:
        """Make the value of the property `name`."""
        self._nodes_left -= 1
        schema = self._resolve(schema)
        if self._nodes_left <= 0 or depth > INVENTED_DEPTH_MAX:
            return None
        if "const" in schema:
            return schema["const"]
        if isinstance(options := schema.get("enum"), list) and options:
            return self._pick(options)
        match _type_of(schema):
            case "object":
                return self._make_object(schema, depth)
            case "array":
                return self._make_array(schema, name, depth)
            case "integer" | "number" as kind:
                return self._make_number(schema, name, whole=kind == "integer")
            case "boolean":
                return (self._named(name) or "true").lower() not in ("false", "no", "0")
            case "null":
                return None
        return self._make_string(schema, name)

    def _make_object(self, schema: dict[str, JSON], depth: int) -> JSON:
        properties = _as_dict(schema.get("properties"))
        wanted = [key for key in _as_list(schema.get("required")) if isinstance(key, str)]
        wanted += [key for key in properties if key not in wanted and self._named(key) is not None]
        if not wanted and depth <= OPTIONAL_DEPTH_MAX:
            wanted = list(properties)
        made: dict[str, JSON] = {}
        for key in wanted[: max(self._nodes_left, 0)]:
            made[key] = self.make(properties.get(key, {}), key, depth + 1)
        return made

    def _make_array(self, schema: dict[str, JSON], name: str, depth: int) -> JSON:
        least = _as_int(schema.get("minItems"), 0)
        count = least if depth > OPTIONAL_DEPTH_MAX else max(least, 1)
        count = min(count, _as_int(schema.get("maxItems"), count), INVENTED_ITEMS_MAX)
        prefix = _as_list(schema.get("prefixItems"))
        rest = schema.get("items", {})
        schemas = [prefix[at] if at < len(prefix) else rest for at in range(count)]
        return [self.make(item, name, depth + 1) for item in schemas]

    def _make_number(self, schema: dict[str, JSON], name: str, *, whole: bool) -> JSON:
        value = _as_float(self._named(name))
        if value is None:
            value = next(self._numbers)
        step = 1.0 if whole else 0.5
        least = _bound(schema, "minimum", "exclusiveMinimum", step)
        most = _bound(schema, "maximum", "exclusiveMaximum", -step)
        if least is not None:
            value = max(value, least)
        if most is not None:
            value = min(value, most)
        multiple = _as_float(schema.get("multipleOf"))
        if multiple and math.isfinite(times := value / multiple):
            value = math.ceil(times) * multiple
        return int(value) if whole or value == int(value) else value

    def _make_string(self, schema: dict[str, JSON], name: str) -> str:
        named = self._named(name)
        if named is None and (example := _FORMATS.get(str(schema.get("format")))) is not None:
            return example
        value = named if named is not None else next(self._phrases)
        value += "." * max(0, min(_as_int(schema.get("minLength"), 0), 4096) - len(value))
        return value[: _as_int(schema.get("maxLength"), len(value))]

    def _pick(self, options: list[JSON]) -> JSON:
        """Return the option the text mentions, else the first."""
        for option in options[:64]:
            if isinstance(option, str) and _find_name(option, self._text) is not None:
                return option
        return options[0]

    def _named(self, name: str) -> str | None:
        """Return what the text gives as `name=value` or `name: value`, or None."""
        return self._given.get(name.lower())

    def _resolve(self, schema: JSON) -> dict[str, JSON]:
        """Follow references and unions down to one plain schema."""
        for _ in range(INVENTED_DEPTH_MAX):
            if not isinstance(schema, dict):
                return {}
            if isinstance(reference := schema.get("$ref"), str):
                schema = self._look_up(reference)
            elif parts := _as_list(schema.get("allOf")):
                schema = _merge([{k: v for k, v in schema.items() if k != "allOf"}, *parts])
            elif union := _as_list(schema.get("anyOf")) or _as_list(schema.get("oneOf")):
                schema = next((item for item in union if _type_of(item) != "null"), union[0])
            else:
                return schema
        return {}

    def _look_up(self, reference: str) -> JSON:
        """Return what a reference into the same document points at, {} if nothing."""
        found = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            found = _as_dict(found).get(part.replace("~1", "/").replace("~0", "~"), {})
        return found


def _merge(schemas: list[JSON]) -> dict[str, JSON]:
    merged: dict[str, JSON] = {}
    for schema in schemas:
        for key, value in _as_dict(schema).items():
            if key == "properties":
                value = {**_as_dict(merged.get(key)), **_as_dict(value)}
            elif key == "required":
                value = [*_as_list(merged.get(key)), *_as_list(value)]
            merged[key] = value
    return merged


def _type_of(schema: JSON) -> str:
    """Return the type a schema asks for; of several the first that is not null."""
    schema = _as_dict(schema)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((item for item in kind if item != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _bound(schema: dict[str, JSON], inside: str, outside: str, step: float) -> float | None:
    """Return a bound of a number: `inside` names one that is allowed itself, `outside` not."""
    bound = _as_float(schema.get(inside))
    if bound is None and (bound := _as_float(schema.get(outside))) is not None:
        bound += step
    return bound


def _as_dict(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _as_list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _as_int(value: JSON, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _as_float(value: object) -> float | None:
    """Read a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Number, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _list_phrases(text: str) -> list[str]:
    """List what a request is most likely about: what it quotes, else names, then last words."""
    quoted = re.findall(r"\"([^\"]+)\"|(?<!\w)'([^']+)'(?!\w)|`([^`]+)`", text)
    if quoted:
        return ["".join(groups) for groups in quoted]
    names: list[str] = re.findall(r"(?<=[^.!?\s] )[A-Z]\w+", text)
    words: list[str] = re.findall(r"[^\W\d_]{3,}", text)
    return names + words[::-1]


# name=value, name: value; the value quoted or up to white space.
_ASSIGNMENT = re.compile(r"([A-Za-z_][\w.-]*)\s*[=:]\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s,;()]+))")


# Examples that satisfy JSON Schema's format names (2020-12, section 7.3) that OpenAI lists.
_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "mock@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uri": "https://example.com/mock",
}
