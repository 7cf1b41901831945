"""Who calls, and what makes two requests the same call."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects import DIALECTS, dialect_by_name, dialect_for_path
from agentstate.ground.budget import Caps
from agentstate.ground.canonical import encode, parse
from agentstate.ground.control import About
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import Identity
from agentstate.ground.settings import ReplaySettings
from agentstate.steps.drift import Masker
from agentstate.steps.identify import (
    SESSION_CHARS_MAX,
    Caller,
    Scope,
    identify,
    last_prompt,
    read_caller,
    read_scope,
)
from agentstate.wire.message import Headers

CHAT = DIALECTS[0]
NOW_MS = 1_796_032_892_000
SCOPE = Scope(CHAT.name, "/v1/chat/completions", "", "", ())


def caller_of(*pairs: tuple[str, str], url: str | None = None) -> Caller | None:
    headers = Headers((name.encode(), value.encode()) for name, value in pairs)
    return read_caller(headers, url, ReplaySettings())


def identity_of(body: Any, scope: Scope = SCOPE, *, masks_ids: bool = False) -> Identity:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    ask = CHAT.read_ask(parse(raw))
    return identify(CHAT, scope, raw, ask, Masker().mask_for(NOW_MS, masks_ids=masks_ids))[0]


def chat(*messages: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **rest}


USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "name",
    [
        "x-agent-session-id",
        "x-claude-code-session-id",
        "session-id",
        "helicone-session-id",
        "x-litellm-trace-id",
        "x-session-id",
    ],
)
def test_every_alias_names_the_session(name: str) -> None:
    caller = caller_of((name, "s1"))
    assert caller is not None
    assert caller.session == "s1"


def test_our_header_goes_before_the_url_and_the_url_before_aliases() -> None:
    both = caller_of(("x-session-id", "alias"), ("x-agent-session-id", "own"), url="url")
    assert both is not None
    assert both.session == "own"
    url = caller_of(("x-session-id", "alias"), url="url")
    assert url is not None
    assert url.session == "url"


def test_no_name_is_no_session_and_an_empty_alias_is_no_name() -> None:
    assert caller_of() is None
    assert caller_of(("x-session-id", "")) is None


@pytest.mark.parametrize("name", ["", "x" * (SESSION_CHARS_MAX + 1), ".", "..", "a\x1fb"])
def test_a_session_id_that_cannot_be_served_everywhere_is_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        caller_of(("x-agent-session-id", name))


@pytest.mark.parametrize(
    "name", ["a/b", "../../etc", "会話", "🚀", "<script>", "'; --", "x?y#z%2F"]
)
def test_an_odd_session_id_is_a_name_like_any(name: str) -> None:
    caller = caller_of(("x-agent-session-id", name))
    assert caller is not None
    assert caller.session == name


def test_a_session_id_that_is_not_utf8_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="x-agent-session-id"):
        read_caller(Headers([(b"X-Agent-Session-Id", b"\xff")]), None, ReplaySettings())


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "", "1_0", "٣", "+1", "0x1", "9" * 17])
def test_an_odd_step_number_is_refused(value: str) -> None:
    with pytest.raises(BadRequest, match="x-agent-step-number"):
        caller_of(("x-agent-session-id", "s"), ("x-agent-step-number", value))


def test_an_idempotency_key_is_a_call_id() -> None:
    caller = caller_of(("x-agent-session-id", "s"), ("idempotency-key", "k1"))
    assert caller is not None
    assert caller.call_id == "k1"


@pytest.mark.parametrize(("count", "is_retry"), [("0", False), ("1", True), ("2", True)])
def test_a_client_says_that_it_retries(count: str, is_retry: bool) -> None:
    caller = caller_of(("x-agent-session-id", "s"), ("x-stainless-retry-count", count))
    assert caller is not None
    assert caller.is_retry is is_retry


def test_what_never_changes_an_answer_never_changes_the_fingerprint() -> None:
    plain = identity_of(chat(USER))
    for extra in (
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "u"},
        {"metadata": {"a": "b"}},
        {"safety_identifier": "x", "prompt_cache_key": "y", "service_tier": "flex", "store": True},
    ):
        assert identity_of(chat(USER, **extra)).exact == plain.exact


@pytest.mark.parametrize(
    "other",
    [
        chat(USER, temperature=0.5),
        chat(USER, temperature=1),
        chat(USER, tools=[{"type": "function", "function": {"name": "f"}}]),
        chat(USER, tool_choice="auto"),
        chat(USER, response_format={"type": "json_object"}),
        chat(USER, enable_thinking=True),
        chat({"role": "user", "content": "hi "}),
        chat(USER, USER),
        {**chat(USER), "model": "n"},
    ],
)
def test_everything_else_counts(other: dict[str, Any]) -> None:
    assert identity_of(other).exact != identity_of(chat(USER)).exact


def test_numbers_count_as_sent() -> None:
    bodies = [
        b'{"model":"m","messages":[{"role":"user","content":"hi"}],"seed":%s}' % number
        for number in (
            b"1",
            b"1.0",
            b"1e0",
            b"true",
            b"2512292042121000001",
            b"2512292042121000002",
        )
    ]
    assert len({identity_of(body).exact for body in bodies}) == len(bodies)


def test_a_provider_in_the_url_and_counted_headers_count() -> None:
    groq = Scope(CHAT.name, "/v1/chat/completions", "", "groq", ())
    assert identity_of(chat(USER), groq).exact != identity_of(chat(USER)).exact
    one = Scope(CHAT.name, "/v1/chat/completions", "", "", (b"a", b""))
    two = Scope(CHAT.name, "/v1/chat/completions", "", "", (b"", b"a"))
    assert identity_of(chat(USER), one).exact != identity_of(chat(USER), two).exact


def test_a_scope_ignores_headers_that_do_not_count() -> None:
    noisy = Headers([(b"x-stainless-retry-count", b"1"), (b"user-agent", b"x")])
    assert read_scope(CHAT, "/p", "", None, noisy) == read_scope(CHAT, "/p", "", None, Headers())


def test_the_query_counts_but_for_a_key_in_it() -> None:
    def scope(query: str) -> Scope:
        return read_scope(CHAT, "/p", query, None, Headers())

    assert scope("api-version=1") != scope("api-version=2")
    assert scope("a=1&key=secret") == scope("a=1") == scope("key=other&a=1")


def test_geminis_two_forms_are_one_call_with_two_raw_keys() -> None:
    body: Any = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    raw = json.dumps(body).encode()

    def found(path: str, query: str) -> Identity:
        dialect = dialect_for_path(path, query)
        assert dialect is not None
        scope = read_scope(dialect, path, query, None, Headers())
        return identify(dialect, scope, raw, dialect.read_ask(body), str)[0]

    plain = found("/v1beta/models/m:generateContent", "")
    stream = found("/v1beta/models/m:streamGenerateContent", "alt=sse")
    other = found("/v1beta/models/n:generateContent", "")

    assert (plain.exact, plain.pinned, plain.masked) == (
        stream.exact, stream.pinned, stream.masked
    )  # fmt: skip
    assert plain.raw != stream.raw
    assert plain.exact != other.exact


def test_pinned_leaves_out_what_tools_answered_and_nothing_else() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f"}}]}
    first = chat(USER, call, {"role": "tool", "tool_call_id": "c1", "content": "21C"})
    again = chat(USER, call, {"role": "tool", "tool_call_id": "c1", "content": "22C"})
    other = chat(USER, call, {"role": "tool", "tool_call_id": "c2", "content": "21C"})
    assert identity_of(first).exact != identity_of(again).exact
    assert identity_of(first).pinned == identity_of(again).pinned
    assert identity_of(first).pinned != identity_of(other).pinned


def test_masked_leaves_out_clocks_of_system_texts_only() -> None:
    def at(clock: str, role: str) -> Identity:
        return identity_of(chat({"role": role, "content": f"It is {clock}."}, USER))

    assert at("2026-11-30", "system").masked == at("2026-11-29", "system").masked
    assert at("2026-11-30", "system").pinned != at("2026-11-29", "system").pinned
    assert at("2026-11-30", "user").masked != at("2026-11-29", "user").masked


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=6), JSONS, max_size=4), st.randoms())
def test_key_order_and_white_space_never_count(extra: dict[str, Any], random: Any) -> None:
    extra = {key: value for key, value in extra.items() if key not in ("model", "messages", "\x00")}
    extra = {key: value for key, value in extra.items() if key not in ("stream", "n")}
    if '\\u0000":' in json.dumps(extra):
        return  # a key that is one NUL is refused
    body = {"model": "m", "messages": [USER], **extra}
    items = list(body.items())
    random.shuffle(items)
    shuffled = json.dumps(dict(items), indent=2, ensure_ascii=False)
    try:
        raw = shuffled.encode()
    except UnicodeEncodeError:
        raw = json.dumps(dict(items), indent=2).encode()
    assert identity_of(raw).exact == identity_of(body).exact


def test_the_split_request_holds_every_byte_that_counts() -> None:
    body = chat(USER, {"role": "assistant", "content": "x"}, temperature=0.70, tools=[{"a": 1.50}])
    raw = json.dumps(body).replace("0.7", "0.70").encode()
    ask = CHAT.read_ask(parse(raw))
    record = identify(CHAT, SCOPE, raw, ask, Masker().mask_for(NOW_MS, masks_ids=False))[1]
    assert [part.value for part in record.chain] == body["messages"]
    assert b'"temperature":0.70' in encode(record.envelope)
    assert [key for key, _ in record.shared] == ["tools"]


def test_a_text_that_stands_for_a_message_stays_a_text_in_the_record() -> None:
    dialect = dialect_by_name("openai_responses")
    assert dialect is not None
    mask = Masker().mask_for(NOW_MS, masks_ids=False)
    found = {}
    for sent in ("hi", [USER]):
        body = {"model": "m", "input": sent, "instructions": "Be kind."}
        raw = json.dumps(body).encode()
        found[str(sent)] = identify(dialect, SCOPE, raw, dialect.read_ask(parse(raw)), mask)
    (of_text, as_text), (of_list, as_list) = found.values()

    assert (as_text.envelope, as_text.list_key, as_text.chain) == (
        {"model": "m", "input": "hi", "instructions": None}, "", (),
    )  # fmt: skip
    assert [part.value for part in as_list.chain] == [USER]
    assert as_list.list_key == "input"
    assert of_text.exact == of_list.exact  # they mean the same
    assert of_text.raw != of_list.raw


def test_the_prompt_of_a_step_is_the_last_thing_a_person_said() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url"},
        {"type": "text", "text": "here"},
    ]
    assert last_prompt(({"role": "user", "content": parts}, {"role": "tool", "content": "x"})) == (
        "look\nhere"
    )
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "5C"}
    asked, answered = {"role": "user", "content": "w?"}, {"role": "user", "content": [result]}
    assert last_prompt((asked, {"role": "assistant", "content": "a"}, answered)) == "w?"
    assert last_prompt((answered,)) == ""
    assert last_prompt(({"role": "user", "parts": [{"text": "hi"}]},)) == "hi"  # Gemini's form
    assert last_prompt(()) == ""


def test_what_an_agent_says_of_its_session_is_read() -> None:
    caller = caller_of(
        ("x-agent-session-id", "s"),
        ("x-agent-session-name", " Invoices für Mai "),
        ("x-agent-parent-session", "boss"),
        ("x-agent-tags", "team=ops, env=test"),
    )
    assert caller is not None
    tags = (("env", "test"), ("team", "ops"))
    assert caller.about == About("Invoices für Mai", "boss", tags)
    capped = caller_of(("x-agent-session-id", "s"), ("x-agent-budget", "steps=5"))
    assert capped is not None
    assert capped.about == About(budget=Caps(steps=5))


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("x-agent-tags", ""),),
        (("x-agent-session-name", ""),),
        (("x-agent-budget", ""),),
    ],
)
def test_who_says_nothing_of_it_says_nothing(headers: tuple[tuple[str, str], ...]) -> None:
    caller = caller_of(("x-agent-session-id", "s"), *headers)
    assert caller is not None
    assert caller.about is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-agent-tags", "ops"),
        ("x-agent-tags", "k=v,k=w"),
        ("x-agent-budget", "steps=many"),
        ("x-agent-budget", "action=ask"),
        ("x-agent-session-name", "x" * 201),
        ("x-agent-parent-session", "s"),
        ("x-agent-parent-session", "x" * 513),
        ("x-agent-parent-session", ".."),
    ],
)
def test_what_cannot_be_said_of_it_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadRequest) as refused:
        caller_of(("x-agent-session-id", "s"), (name, value))
    assert refused.value.param == name
