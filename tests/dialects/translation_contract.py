"""What two dialects can both say, as values to draw from and as a reading to compare.

`test_translation_contract.py` sends them through every pair. A conversation is compared by what it
tells (`tell`): who said what in which order, which call got which result. How a form cuts that into
messages is its own affair; that nothing of it is lost or changed is what the pairs must keep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from agentstate.dialects import DIALECTS, UPSTREAM_DIALECTS, dialect_by_name, dialect_for_path
from agentstate.dialects.lenient import join_text
from agentstate.dialects.neutral import (
    Asked,
    Audio,
    Called,
    Document,
    Format,
    Image,
    Item,
    Offer,
    Pick,
    Receiver,
    Refused,
    Result,
    Seen,
    Text,
    TranslatingDialect,
    Turn,
    translates,
)
from agentstate.ground.canonical import JSON, Number, canonical, encode, parse


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a pair: a form, and who speaks it."""

    form: str
    receiver: Receiver
    has_custom: bool = False  # it knows tools that take free text
    marks_errors: bool = False  # it can say that a result is an error; others say it in words
    keeps_arguments: bool = True  # as the text they are; else as the value
    list_key: str = "messages"

    def __str__(self) -> str:
        return f"{self.form}@{self.receiver.provider}"

    def dialect(self, *, streams: bool = False) -> TranslatingDialect:
        """Return the dialect as it reads a request."""
        row = dialect_by_name(self.form)
        assert row is not None
        assert translates(row)
        path, query = row.request_path(self.receiver.model, streams=streams)
        bound = dialect_for_path(path, query) or row
        assert translates(bound)
        return bound


CHAT = Side("openai_chat", Receiver("openai", "gpt-4.1"), has_custom=True)
ELSEWHERE = Side("openai_chat", Receiver("groq", "llama-3.3-70b-versatile"))
RESPONSES = Side(
    "openai_responses", Receiver("openai", "gpt-4.1"), has_custom=True, list_key="input"
)
MESSAGES = Side(
    "anthropic_messages", Receiver("anthropic", "claude-sonnet-4-5"), marks_errors=True,
    keeps_arguments=False,
)  # fmt: skip
GEMINI = Side(
    "gemini", Receiver("gemini", "gemini-3-pro-preview"), marks_errors=True, keeps_arguments=False,
    list_key="contents",
)  # fmt: skip
OLLAMA = Side("ollama_chat", Receiver("ollama", "qwen3"), keeps_arguments=False)
CALLERS = (CHAT, RESPONSES, MESSAGES, GEMINI)
# (who asks, who is asked)
PAIRS = tuple(
    (caller, target)
    for caller in CALLERS
    for target in (*CALLERS, ELSEWHERE, OLLAMA)
    if caller.form != target.form
)
FORMS = {row.name for row in (*DIALECTS, *UPSTREAM_DIALECTS) if translates(row)}

SAFE_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")  # what every vendor takes as the id of a call


# --- what is drawn --------------------------------------------------------------------------------

_ALPHABET = 'ab \n"{}\\\u2028\u00e9\U0001f600\udfff'
# Blank ones say nothing, and some vendors refuse them.
texts = st.text(_ALPHABET, min_size=1, max_size=8).filter(lambda text: bool(text.strip()))
# In Gemini's form a result that is an object is one, not a text.
plain_texts = texts.filter(lambda text: not text.lstrip().startswith("{"))
arguments = st.sampled_from(
    (
        "{}",
        '{"city":"Oslo"}',
        '{ "a" : 1.50, "id" : 2512292042121000001, "e": 1e5 }',
        '{"deep":{"list":[1,null,true,"\\u2028"]}}',
    )
) | st.dictionaries(texts, texts | st.integers(), max_size=2).map(json.dumps)
# Of a tool and of an answer; each kind of value the forms have.
SCHEMA: JSON = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "where"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
images = st.sampled_from(("QUJD", "REVG")).flatmap(
    lambda data: st.builds(
        Image, st.just(data), st.sampled_from(("image/png", "image/jpeg")),
        detail=st.sampled_from((None, "auto", "low")),
    )
) | st.just(Image(url="https://example.org/cat.png"))  # fmt: skip
shown: st.SearchStrategy[Item] = st.one_of(
    images,
    st.builds(Document, st.just("JVBERg=="), st.just("application/pdf"), name=st.just("a.pdf")),
    st.just(Audio("UklGRg==", "wav")),
)
caches: st.SearchStrategy[JSON] = st.sampled_from((None, None, None, {"type": "ephemeral"}))
said = st.builds(Text, texts, caches)
# Of the user there is always a word: of one whose only picture is left out nothing would be.
shows = st.builds(
    lambda before, word, after: [*before, word, *after],
    st.lists(said | shown, max_size=1), said, st.lists(said | shown, max_size=2),
)  # fmt: skip

OFFERS = (
    Offer("get_weather", "Tell the weather.", SCHEMA, True),
    Offer("now"),
    Offer("patch", "Change a file.", is_custom=True),
)


@st.composite
def conversations(draw: st.DrawFn, *, rounds_max: int = 3) -> tuple[Turn, ...]:
    """Draw a conversation that is the user's turn; every call in it has its result."""
    turns = [Turn("system", (Text(draw(texts)),)) for _ in range(draw(st.integers(0, 2)))]
    turns.append(Turn("user", tuple(draw(shows))))
    for at in range(draw(st.integers(0, rounds_max))):
        turns += draw(rounds(at))
    return tuple(turns)


@st.composite
def rounds(draw: st.DrawFn, at: int) -> list[Turn]:
    """Draw an answer of the model and what the agent said to it."""
    count = draw(st.integers(0, 3))
    items: list[Item] = draw(st.lists(st.builds(Text, texts), min_size=not count, max_size=1))
    if not count:
        items += draw(st.lists(st.builds(Refused, texts), max_size=1))
    calls = [draw(_calls(f"call_{at}_{place}")) for place in range(count)]
    results = [
        Result(call.call_id, (Text(draw(plain_texts)),), draw(st.booleans()), call.is_custom)
        for call in draw(st.permutations(calls))
    ]
    turns = [Turn("assistant", (*items, *calls))]
    if results:
        turns.append(Turn("user", tuple(results)))
    if count and draw(st.booleans()):
        return turns
    return [*turns, Turn("user", tuple(draw(shows)))]


@st.composite
def _calls(draw: st.DrawFn, call_id: str) -> Called:
    name = draw(st.sampled_from([offer.name for offer in OFFERS]))
    is_custom = name == "patch"
    return Called(call_id, name, draw(texts if is_custom else arguments), is_custom)


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    """Draw a whole request. All tools are offered: a history has calls of them."""
    return Asked(
        model="m",
        turns=draw(conversations()),
        streams=draw(st.booleans()),
        tools=OFFERS,
        pick=draw(
            st.sampled_from((None, Pick("auto"), Pick("any"), Pick("none"), Pick("named", "now")))
        ),
        calls_in_parallel=draw(st.sampled_from((None, True, False))),
        output_tokens_max=draw(st.none() | st.integers(16, 64_000)),
        temperature=draw(_numbers(0, 1, Number("0.50"))),
        top_p=draw(_numbers(Number("0.9"))),
        top_k=draw(st.sampled_from((None, 40))),
        seed=draw(st.sampled_from((None, 7))),
        presence_penalty=draw(_numbers(Number("0.5"))),
        stop=draw(st.sampled_from(((), ("END",), ("a", "b", "c", "d")))),
        format=draw(st.sampled_from((None, Format(), Format(SCHEMA, "answer", None, True)))),
        effort=draw(st.sampled_from((None, "low", "high"))),
        verbosity=draw(st.sampled_from((None, "low"))),
    )


def _numbers(*values: JSON | Number) -> st.SearchStrategy[Any]:
    return st.sampled_from((None, *values))


# --- what a conversation tells --------------------------------------------------------------------


@dataclass(slots=True)
class Told:
    """What one side said until the other one spoke."""

    side: str
    words: list[str] = field(default_factory=list)  # texts, and what is shown as a mark
    calls: list[Called] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)  # by the id of their call


def tell(turns: Sequence[Turn], dropped: Iterable[str] = ()) -> list[Told]:
    """Return what a conversation tells; of what is shown, without the kinds that are dropped."""
    found: list[Told] = []
    for turn in turns:
        if turn.role == "system":
            continue
        for item in turn.items:
            if not found or found[-1].side != turn.role:
                found.append(Told(turn.role))
            _take(found[-1], item, tuple(dropped))
    return found


def _take(told: Told, item: Item, dropped: tuple[str, ...]) -> None:
    match item:
        case Text() | Refused():
            told.words.append(item.text)
        case Called():
            told.calls.append(item)
        case Result():
            assert item.call_id not in told.results, "one result a call"
            told.results[item.call_id] = item
        case _ if not _is_named(item, dropped):
            told.words.append(_mark(item, dropped))


def _is_named(item: Seen, dropped: tuple[str, ...]) -> bool:
    """Whether what is shown is among what was dropped."""
    match item:
        case Image():
            return "images" in dropped or (item.url is not None and "images by URL" in dropped)
        case Document():
            return "documents" in dropped
        case Audio():
            return "audio" in dropped
    return False


def _mark(item: Seen, dropped: tuple[str, ...]) -> str:
    """Stand for something that is shown, by all that has to survive."""
    match item:
        case Image():
            detail = "auto" if "image detail" in dropped else item.detail or "auto"
            return f"\0image {item.media_type} {item.data} {item.url} {detail}\0"
        case Document():
            # One that comes as data has to have a name in some forms.
            name = None if "names of documents" in dropped else item.name or "document.pdf"
            return f"\0document {item.media_type} {item.data} {name}\0"
        case Audio():
            return f"\0audio {item.kind} {item.data}\0"
        case Text():
            return item.text


def system_of(turns: Sequence[Turn]) -> list[str]:
    """Return all the system's words."""
    items = [item for turn in turns if turn.role == "system" for item in turn.items]
    return [item.text for item in items if isinstance(item, Text)]


def check_told(before: Asked, after: Asked, dropped: Sequence[str], target: Side) -> None:
    """Hold what came out of a pair against what went in."""
    expected, found = tell(before.turns, dropped), tell(after.turns, dropped)
    expected = [told for told in expected if told.words or told.calls or told.results]
    assert [told.side for told in found] == [told.side for told in expected]
    for theirs, ours in zip(expected, found, strict=True):
        check_words(theirs.words, ours.words, target)
        assert len(ours.calls) == len(theirs.calls)
        for one, other in zip(theirs.calls, ours.calls, strict=True):
            check_call(one, other, target)
        assert ours.results.keys() == theirs.results.keys()
        for call_id, result in theirs.results.items():
            check_result(result, ours.results[call_id], dropped, target)
    pattern = "\n{1,2}".join(re.escape(text) for text in system_of(before.turns))
    if before.format is not None:
        pattern += "(?s:.*)"  # a form that has no place for it says it in words
    assert re.fullmatch(pattern, "\n".join(system_of(after.turns)))


def check_words(theirs: Sequence[str], ours: Sequence[str], target: Side) -> None:
    """Compare texts that a form may join, and what is shown between them."""
    if target.form == "ollama_chat":
        # Texts come first there, and pictures are data and nothing else.
        theirs = sorted(theirs, key=lambda word: word.startswith("\0"))
        theirs = [re.sub("\0image image/[a-z]+ ", "\0image None ", word) for word in theirs]
    pattern = "\n{0,2}".join(re.escape(word) for word in theirs)
    assert re.fullmatch(pattern, "".join(ours)), (theirs, ours)


def check_call(theirs: Called, ours: Called, target: Side) -> None:
    """Compare a call; one that takes free text may be a function with one argument."""
    assert (ours.call_id, ours.name) == (theirs.call_id, theirs.name)
    if theirs.is_custom and not target.has_custom:
        assert value_of(ours.arguments) == canonical({"input": theirs.arguments})
    elif target.keeps_arguments:
        assert (ours.arguments, ours.is_custom) == (theirs.arguments, theirs.is_custom)
    else:
        assert value_of(ours.arguments) == value_of(theirs.arguments)


def check_result(theirs: Result, ours: Result, dropped: Sequence[str], target: Side) -> None:
    """Compare what a tool gave."""
    text = text_of(theirs)
    if target.marks_errors:
        assert ours.is_error == theirs.is_error
    elif theirs.is_error and "error marks of tool results" not in dropped:
        text = f"Error: {text}"
    assert text_of(ours) == text


def text_of(result: Result) -> str:
    """Return the text of a result."""
    return "".join(part.text for part in result.parts if isinstance(part, Text))


def value_of(text: str) -> bytes:
    """Return arguments as the value they are, numbers as they were written."""
    return canonical(parse((text.strip() or "{}").encode("utf-8", "surrogatepass")))


# --- what else a request says ---------------------------------------------------------------------

# What a receiver is told of by another name than the field's.
_NAMES = {"choices": "n", "effort": "reasoning effort", "calls_in_parallel": "parallel_tool_calls"}


def check_rest(before: Asked, after: Asked, dropped: Sequence[str], target: Side) -> None:
    """Every field is what it was, or is named."""
    for key in (
        "temperature", "top_p", "top_k", "seed", "presence_penalty", "stop", "effort", "verbosity",
    ):  # fmt: skip
        theirs, ours = getattr(before, key), getattr(after, key)
        name = _NAMES.get(key, key)
        is_named = any(each == name or each.startswith(f"{name}[") for each in dropped)
        assert ours == theirs or (is_named and not ours), (key, theirs, ours, dropped)
    if target.form != "anthropic_messages" or before.output_tokens_max is not None:
        assert after.output_tokens_max == before.output_tokens_max
    assert after.streams == before.streams
    check_tools(before, after, dropped, target)
    check_format(before.format, after.format, dropped, target)


def check_tools(before: Asked, after: Asked, dropped: Sequence[str], target: Side) -> None:
    """The same tools are offered, and the same choice of them."""
    modes = [Pick("auto") if each.pick is None else each.pick for each in (before, after)]
    if target.form == "ollama_chat" and modes[0].mode == "none":
        assert not after.tools  # it knows no other way to say so
        return
    for at, (theirs, ours) in enumerate(zip(before.tools, after.tools, strict=True)):
        assert (ours.name, ours.description) == (theirs.name, theirs.description)
        if theirs.is_custom and not target.has_custom:
            assert shape_of(ours.schema)["required"] == ["input"]
            continue
        assert ours.is_custom == theirs.is_custom
        assert shape_of(ours.schema) == shape_of(theirs.schema)
        assert bool(ours.is_strict) == bool(theirs.is_strict) or f"tools[{at}]: strict" in dropped
    assert modes[0] == modes[1] or "tool choice" in dropped
    if before.calls_in_parallel is False and modes[0].mode != "none":
        assert after.calls_in_parallel is False or "parallel_tool_calls" in dropped


def check_format(
    theirs: Format | None, ours: Format | None, dropped: Sequence[str], target: Side
) -> None:
    """What the answer must be is said in its place, or in words that are held apart."""
    if theirs is None:
        assert ours is None
    elif theirs.schema is None:
        assert ours == Format() or target.form in ("anthropic_messages", "gemini")
    elif ours is None:
        assert "response schema: told in words" in dropped
    else:
        assert shape_of(ours.schema) == shape_of(theirs.schema)


def shape_of(schema: JSON) -> dict[str, JSON]:
    """Return what a schema allows: an object that says nothing is an object of anything, and one
    that is closed is not told apart, since not every form can say it."""
    fields = schema if isinstance(schema, dict) else {}
    shape = {"type": "object", "properties": {}, **fields}
    return {key: value for key, value in shape.items() if key != "additionalProperties"}


# --- bodies ---------------------------------------------------------------------------------------


def read_ollama(body: Mapping[str, Any]) -> Asked:
    """Read a request in Ollama's own form, which nobody in the house does."""
    turns: list[Turn] = []
    for message in body["messages"]:
        words: list[Item] = [Text(message["content"])] if message["content"] else []
        words += [Image(data) for data in message.get("images", ())]
        if message["role"] == "tool":
            result = Result(message["tool_call_id"], tuple(map(_as_seen, words)))
            turns.append(Turn("user", (result,)))
            continue
        words += [
            Called(call["id"], function["name"], encode(function["arguments"]).decode())
            for call in message.get("tool_calls", ())
            for function in (call["function"],)
        ]
        turns.append(Turn(message["role"], tuple(words)))
    options, wanted = body.get("options", {}), body.get("format")
    functions = (tool["function"] for tool in body.get("tools", ()))
    return Asked(
        body["model"], tuple(turns), body["stream"],
        tuple(Offer(each["name"], each.get("description"), each["parameters"])
              for each in functions),
        output_tokens_max=options.get("num_predict"),
        stop=tuple(options.get("stop", ())),
        format=None if wanted is None else Format(None if wanted == "json" else wanted),
        **{key: options.get(key) for key in
           ("temperature", "top_p", "top_k", "seed", "presence_penalty")},
    )  # fmt: skip


def _as_seen(item: Item) -> Seen:
    assert isinstance(item, Seen)
    return item


def replaced(value: JSON, strings: Mapping[str, str]) -> JSON:
    """Return JSON with other strings in place of some."""
    match value:
        case str():
            return strings.get(value, value)
        case list():
            return [replaced(each, strings) for each in value]
        case dict():
            return {key: replaced(each, strings) for key, each in value.items()}
        case _:
            return value


def joined(text: str) -> str:
    """Return a text with the halves of characters put together, as clients do."""
    return join_text([text])
