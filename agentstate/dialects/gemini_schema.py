"""JSON schemas for Gemini, and Gemini's as JSON schemas.

Google's Schema is a part of OpenAPI's, with messages generated from it: one keyword that it does
not know refuses the whole request. So what is written here has known keywords only, each where its
type allows it, references are replaced by what they refer to, and every schema has one type. There
is a second field that takes JSON schemas as they are (`parametersJsonSchema`), but not on every
version and model, so it is read and never written.

The invariant: whatever comes in, what goes out is finite and of known keywords, and a limit that is
lost is named. Words that limit nothing (`$comment`, `x-...`) go without being named.
Source: ai.google.dev/api/caching (Schema) and the types of the `google-genai` package 3.6, November
2026. That an anyOf stands alone, that enums are texts and that lists say what they hold is known
from Google's errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from agentstate.dialects.lenient import as_integer, as_list, as_object
from agentstate.ground.canonical import JSON, Number, encode

# What of a schema may be kept, by the type it has, besides what every one has.
ALWAYS_KEPT = frozenset(("type", "title", "description", "nullable", "default", "example"))
KEPT = {
    "string": frozenset(("enum", "format", "minLength", "maxLength", "pattern")),
    "integer": frozenset(("format", "minimum", "maximum")),
    "number": frozenset(("format", "minimum", "maximum")),
    "boolean": frozenset[str](),
    "array": frozenset(("items", "minItems", "maxItems")),
    "object": frozenset(
        ("properties", "required", "propertyOrdering", "minProperties", "maxProperties")
    ),
    "null": frozenset[str](),
}
FORMATS = {
    "string": frozenset(("date-time", "enum")),
    "integer": frozenset(("int32", "int64")),
    "number": frozenset(("float", "double")),
}

DEPTH_MAX = 40  # of schemas in schemas; OpenAI allows 10
SCHEMAS_MAX = 5000  # in one: references to what refers twice in turn double with every step

# Keywords that limit what fits and have no form here. Those handled below are not in it.
_LIMITS = frozenset(
    ("not", "if", "then", "else", "patternProperties", "propertyNames", "dependentRequired",
     "dependentSchemas", "dependencies", "unevaluatedProperties", "unevaluatedItems", "contains",
     "minContains", "maxContains", "uniqueItems", "multipleOf", "contentEncoding",
     "contentMediaType", "additionalItems", "$dynamicRef", "$recursiveRef")
)  # fmt: skip

_BOUNDS = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))

# From which keyword a type follows where none is given, in this order.
_HINTS = (
    ("properties", "object"), ("required", "object"), ("additionalProperties", "object"),
    ("items", "array"), ("prefixItems", "array"), ("minimum", "number"), ("maximum", "number"),
    ("exclusiveMinimum", "number"), ("exclusiveMaximum", "number"), ("multipleOf", "number"),
    ("pattern", "string"), ("minLength", "string"), ("maxLength", "string"), ("format", "string"),
)  # fmt: skip
# Of two that stand for one schema either will do.
_WORDS = frozenset(("title", "description", "default", "examples", "$defs", "definitions"))
_TEXT_KEYS = frozenset(("title", "description", "pattern", "format"))
_COUNTS = frozenset(
    ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
)

_Refs = frozenset[str]  # the references that a schema stands in, from the root down


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A schema in Google's form, and the keywords of what it does not say any more."""

    schema: dict[str, JSON]
    lost: tuple[str, ...] = ()


def clean(schema: JSON, *, is_object: bool = False) -> Cleaned:
    """Return a JSON schema in Google's form. `is_object`: of a function's arguments, which are
    an object, whatever it says."""
    cleaning = _Cleaning(schema)
    made = cleaning.root(is_object)
    return Cleaned(made, tuple(cleaning.lost))


class _Cleaning:
    """One schema being written. References are looked up from its root."""

    __slots__ = ("_count", "_root", "lost")

    def __init__(self, root: JSON) -> None:
        self._root = root
        self._count = 0
        self.lost: dict[str, None] = {}  # in order, each once

    def root(self, is_object: bool) -> dict[str, JSON]:
        if not is_object:
            return self._schema(self._root, 0, frozenset())
        fields, refs = self._flat(self._root, 0, frozenset())
        return self._typed("object", self._folded(fields, 0, refs), 0, refs)

    def _lose(self, keyword: str) -> None:
        self.lost[keyword] = None

    def _schema(self, value: JSON, depth: int, refs: _Refs) -> dict[str, JSON]:
        """Return any schema in Google's form: by its alternatives, or by its one type."""
        fields, refs = self._flat(value, depth, refs)
        if "anyOf" in fields and "properties" in fields:
            fields = self._folded(fields, depth, refs)
        if "anyOf" in fields:
            return self._alternatives(fields, depth, refs)
        kinds = _types_of(fields)
        is_nullable = fields.get("nullable") is True or ("null" in kinds and len(kinds) > 1)
        kinds = [kind for kind in kinds if kind != "null" or len(kinds) == 1]
        if len(kinds) > 1:
            options: list[JSON] = [{"type": kind} for kind in kinds]
            own = {key: each for key, each in fields.items() if key != "type"}
            own["nullable"] = is_nullable
            return self._alternatives({**own, "anyOf": options}, depth, refs)
        made = self._typed(kinds[0] if kinds else self._guess(fields), fields, depth, refs)
        if is_nullable or _has_null(fields):
            _make_nullable(made)
        return made

    def _flat(self, value: JSON, depth: int, refs: _Refs) -> tuple[dict[str, JSON], _Refs]:
        """Return a schema's own keywords with those of what it refers to and of its allOf.

        All that is written goes through here, so here is where it ends.
        """
        self._count += 1
        if depth > DEPTH_MAX or self._count > SCHEMAS_MAX:
            self._lose("depth" if depth > DEPTH_MAX else "size")
            return {"type": "object"}, refs
        if not isinstance(value, dict):
            return {}, refs
        fields = dict(value)
        parts: list[JSON] = as_list(fields.pop("allOf", None))
        if (ref := fields.pop("$ref", None)) is not None:
            parts = [*parts, self._referred(ref, refs)]
            refs = refs | {ref} if isinstance(ref, str) else refs
        one_of = as_list(fields.pop("oneOf", None))
        if one_of:
            fields["anyOf"] = [*as_list(fields.get("anyOf")), *one_of]
        if not as_list(fields.get("anyOf")):
            fields.pop("anyOf", None)
        for part in parts:
            more, refs = self._flat(part, depth + 1, refs)
            fields = self._both(fields, more)
        return fields, refs

    def _referred(self, ref: JSON, refs: _Refs) -> JSON:
        """Return what a reference refers to; any object for one that goes round or nowhere."""
        if isinstance(ref, str) and ref in refs:
            self._lose("recursion")
            return {"type": "object"}
        found = _look_up(self._root, ref)
        if found is None:
            self._lose("$ref")
            return {"type": "object"}
        return found

    def _both(self, first: dict[str, JSON], second: dict[str, JSON]) -> dict[str, JSON]:
        """Return keywords that say what both say; where they differ the first ones count."""
        made = {**second, **first}
        for key, one in first.items():
            if key not in second:
                continue
            other = second[key]
            if isinstance(one, dict) and isinstance(other, dict) and key == "properties":
                made[key] = {**other, **one}
            elif key == "required":
                made[key] = [*as_list(one), *as_list(other)]
            elif key not in _WORDS and (isinstance(one, dict | list) or one != other):
                self._lose("allOf")
        return made

    def _folded(self, fields: dict[str, JSON], depth: int, refs: _Refs) -> dict[str, JSON]:
        """Return an object of alternative shapes as one that has the properties of all of them.
        Only those that it has itself are required."""
        if "anyOf" not in fields:
            return fields
        self._lose("anyOf")
        properties = dict(as_object(fields.get("properties")))
        for each in as_list(fields["anyOf"]):
            more, _ = self._flat(each, depth + 1, refs)
            properties = {**as_object(more.get("properties")), **properties}
        own = {key: value for key, value in fields.items() if key != "anyOf"}
        return {**own, "properties": properties}

    def _alternatives(self, fields: dict[str, JSON], depth: int, refs: _Refs) -> dict[str, JSON]:
        """Return alternatives: alone, since no other keyword may stand beside them. What the schema
        says itself is said by each."""
        own = {key: value for key, value in fields.items() if key not in ("anyOf", "nullable")}
        options = as_list(fields["anyOf"])
        made = [
            self._schema({"allOf": [each, own]}, depth + 1, refs)
            for each in options
            if not _is_null(each)
        ]
        made = [each for each in made if each.get("type") != "null"]
        if not made:
            return {"type": "null"}
        if fields.get("nullable") is True or len(made) < len(options):
            for each in made:
                _make_nullable(each)
        return made[0] if len(made) == 1 else {"anyOf": _spread(made)}

    def _typed(
        self, kind: str, fields: dict[str, JSON], depth: int, refs: _Refs
    ) -> dict[str, JSON]:
        """Return a schema of one type: what of it has a form, each in its form."""
        for keyword, limit in fields.items():
            if keyword in _LIMITS and limit not in (False, None, {}, []):
                self._lose(keyword)
        if kind == "object":
            return self._object(fields, depth, refs)
        made = self._plain(kind, fields)
        if kind == "array":
            made["items"] = self._items(fields, depth, refs)
        elif kind in ("integer", "number"):
            self._add_bounds(kind, fields, made)
        values = as_list(fields["enum"]) if isinstance(fields.get("enum"), list) else None
        if "const" in fields:
            values = [fields["const"]]
        if values is not None:
            self._add_values(kind, values, made)
        return made

    def _plain(self, kind: str, fields: dict[str, JSON]) -> dict[str, JSON]:
        """Return the keywords that are kept as they are."""
        made: dict[str, JSON] = {"type": kind}
        for key, value in fields.items():
            if key in ("type", "enum", "items", "properties", "required", "nullable"):
                continue
            if key == "examples" and as_list(value):
                made.setdefault("example", as_list(value)[0])
            if not (key in ALWAYS_KEPT or key in KEPT[kind]) or not _is_sound(key, value):
                continue
            if key == "format" and value not in FORMATS.get(kind, ()):
                self._lose("format")
            else:
                made[key] = value
        return made

    def _object(self, fields: dict[str, JSON], depth: int, refs: _Refs) -> dict[str, JSON]:
        made = self._plain("object", fields)
        properties = as_object(fields.get("properties"))
        if properties:
            made["properties"] = {
                name: self._schema(each, depth + 1, refs) for name, each in properties.items()
            }
        for key in ("required", "propertyOrdering"):
            names = [
                each
                for each in as_list(fields.get(key))
                if isinstance(each, str) and each in properties
            ]
            made.pop(key, None)
            if names:
                made[key] = list(dict.fromkeys(names))
        if fields.get("additionalProperties") not in (None, False):
            # Without it nothing is said of further ones, and none is made.
            self._lose("additionalProperties")
        return made

    def _items(self, fields: dict[str, JSON], depth: int, refs: _Refs) -> dict[str, JSON]:
        """Return what a list holds. Google wants it said; of a tuple it can only be said of all."""
        places = fields.get("prefixItems")
        if not isinstance(places, list):
            places = fields.get("items")
        if not isinstance(places, list):
            return self._schema(fields.get("items"), depth + 1, refs)
        self._lose("prefixItems")
        kinds: list[JSON] = list({encode(each): each for each in places}.values())
        return self._schema({"anyOf": kinds} if kinds else None, depth + 1, refs)

    def _add_bounds(self, kind: str, fields: dict[str, JSON], made: dict[str, JSON]) -> None:
        for key, over, step in _BOUNDS:
            bound = fields.get(over)
            if bound is None or bound is False:
                continue
            if kind == "integer" and (whole := as_integer(bound)) is not None:
                bound = whole + step
            else:
                self._lose(over)
            if key in made:
                self._lose(over)
            elif _is_number(bound):
                made[key] = bound

    def _add_values(self, kind: str, values: list[JSON], made: dict[str, JSON]) -> None:
        """Say which values fit. They are texts; what is none stands in the description, where the
        model at least reads it."""
        named = [each for each in values if each is not None]
        if not named:
            return
        if kind == "string":
            texts = [each for each in named if isinstance(each, str) and each]
            if len(texts) < len(named):
                self._lose("enum")
            if texts:
                made["enum"] = list(dict.fromkeys(texts))
            return
        self._lose("enum")
        words = "One of: " + ", ".join(encode(each).decode("ascii") for each in named) + "."
        known = made.get("description")
        made["description"] = f"{known} {words}" if isinstance(known, str) and known else words

    def _guess(self, fields: dict[str, JSON]) -> str:
        """Return the type of a schema that gives none. A text can hold anything."""
        values = [*as_list(fields.get("enum")), fields.get("const")]
        kinds = {_type_of_value(each) for each in values if each is not None}
        if kinds:
            kinds -= {"integer"} if "number" in kinds else set()
            return kinds.pop() if len(kinds) == 1 else "string"
        for keyword, kind in _HINTS:
            if fields.get(keyword) is not None:
                return kind
        self._lose("any type")
        return "string"


def _types_of(fields: Mapping[str, JSON]) -> list[str]:
    """Return the types a schema allows, each once; [] where it names none that is known."""
    named = fields.get("type")
    names = named if isinstance(named, list) else [named]
    lower = [each.lower() for each in names if isinstance(each, str)]
    kinds = [each for each in dict.fromkeys(lower) if each in KEPT]
    # Every integer is a number.
    return [each for each in kinds if each != "integer" or "number" not in kinds]


def _type_of_value(value: JSON) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "number"


def _has_null(fields: Mapping[str, JSON]) -> bool:
    """Tell whether null is among the values a schema lists."""
    is_listed = None in as_list(fields.get("enum"))
    return is_listed or ("const" in fields and fields["const"] is None)


def _is_null(schema: JSON) -> bool:
    """Tell whether an alternative is null and nothing else."""
    fields = as_object(schema)
    if fields.get("type") in ("null", ["null"]):
        return True
    return "type" not in fields and (fields.get("enum") == [None] or fields.get("const", 0) is None)


def _make_nullable(schema: dict[str, JSON]) -> None:
    for each in as_list(schema.get("anyOf")) or [schema]:
        fields = as_object(each)
        if fields.get("type") != "null":
            fields["nullable"] = True


def _spread(made: list[dict[str, JSON]]) -> list[JSON]:
    """Return alternatives with those that are alternatives themselves among them."""
    spread: list[JSON] = []
    for each in made:
        spread += as_list(each["anyOf"]) if "anyOf" in each else [each]
    return spread


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float | Number) and not isinstance(value, bool)


def _is_sound(key: str, value: JSON) -> bool:
    """Tell whether a keyword that is kept has a value of the kind it wants."""
    if key in _TEXT_KEYS:
        return isinstance(value, str)
    if key in _COUNTS:
        return as_integer(value) is not None
    if key in ("minimum", "maximum"):
        return _is_number(value)
    return value is not None


def _look_up(root: JSON, ref: JSON) -> JSON:
    """Return what a reference within a schema refers to; None = nothing (RFC 6901)."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    found = root
    for step in unquote(ref[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = as_object(found).get(name)
    return found


# --- the other way --------------------------------------------------------------------------------

# Google's schemas are OpenAPI's, in proto's JSON: types in capitals, large counts as texts.
_SPELLINGS = {
    "any_of": "anyOf", "prefix_items": "prefixItems", "min_items": "minItems",
    "max_items": "maxItems", "min_length": "minLength", "max_length": "maxLength",
    "min_properties": "minProperties", "max_properties": "maxProperties",
    "additional_properties": "additionalProperties",
}  # fmt: skip


def schema_of(function: Mapping[str, JSON]) -> JSON:
    """Return the JSON schema of a declared function's arguments, in whichever form it is; None =
    none was given, or one that cannot be read."""
    for name in ("parametersJsonSchema", "parameters_json_schema"):
        if function.get(name) is not None:
            return function[name]
    try:
        return json_schema(function.get("parameters"))
    except RecursionError:
        return None  # nested too deeply to check anything against it


def json_schema(schema: JSON) -> JSON:
    """Return one of Google's schemas as JSON schema.

    Raises:
        RecursionError: it is nested too deeply.
    """
    if not isinstance(schema, dict):
        return schema
    made: dict[str, JSON] = {}
    for key, value in schema.items():
        name = _SPELLINGS.get(key, key)
        if name == "type" and isinstance(value, str):
            if value.upper() != "TYPE_UNSPECIFIED":
                made[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            made[name] = {each: json_schema(inner) for each, inner in value.items()}
        elif name in ("anyOf", "prefixItems") and isinstance(value, list):
            made[name] = [json_schema(inner) for inner in value]
        elif name in ("items", "additionalProperties"):
            made[name] = json_schema(value)
        elif name in _COUNTS and isinstance(value, str) and value.isdecimal():
            made[name] = int(value)
        elif name != "nullable":
            made[name] = value
    if schema.get("nullable") is True:
        if isinstance(kind := made.get("type"), str):
            made["type"] = [kind, "null"]
        if isinstance(values := made.get("enum"), list):
            made["enum"] = [*values, None]
    return made
