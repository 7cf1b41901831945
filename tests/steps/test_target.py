"""What a target is sent besides the body: path, headers, and whose key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.steps.target import Target, caller_key, is_native, upstream_headers
from agentstate.wire.message import HOP_BY_HOP, Headers, Origin, Pair

ORIGIN = Origin("https", "up.example", 443)
OURS = {b"accept-encoding": b"gzip, identity", b"x-agentstate-hop": b"1"}


def target(
    *, base: str = "/v1", keeps_v1: bool = False, key: str | None = None,
    key_header: bytes = b"authorization", takes_callers_key: bool = False,
    is_stranger: bool = False, dialect: str = "",
) -> Target:  # fmt: skip
    return Target(
        "up", "m", ORIGIN, base, keeps_v1, key, key_header, takes_callers_key,
        is_stranger=is_stranger, dialect=dialect,
    )  # fmt: skip


def sent(pairs: list[Pair], to: Target) -> list[Pair]:
    """Return what goes upstream, without what is added to every call."""
    return [pair for pair in upstream_headers(Headers(pairs), to) if pair[0] not in OURS]


def test_a_target_is_called_by_its_provider_and_model() -> None:
    assert target().label == "up/m"


# -- path


@pytest.mark.parametrize(
    ("base", "keeps_v1", "path", "query", "expected"),
    [
        ("/v1", False, "/v1/chat/completions", "", b"/v1/chat/completions"),
        ("", False, "/v1/chat/completions", "", b"/chat/completions"),
        ("/openai/v1", False, "/v1/responses", "a=1", b"/openai/v1/responses?a=1"),
        ("", True, "/v1/messages", "beta=true", b"/v1/messages?beta=true"),
        ("/api", True, "/v1/messages", "", b"/api/v1/messages"),
        ("/api/v1", True, "/v1/messages", "", b"/api/v1/messages"),
        ("", True, "/v1beta/models/m:generateContent", "", b"/v1beta/models/m:generateContent"),
        ("", False, "/api/chat", "", b"/api/chat"),
    ],
)
def test_a_path_goes_below_the_base_url(
    base: str, keeps_v1: bool, path: str, query: str, expected: bytes
) -> None:
    assert target(base=base, keeps_v1=keeps_v1).path(path, query) == expected


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1beta/models/m:generateContent", True),
        ("/v1alpha/models", True),
        ("/upload/v1beta/files", True),
        ("/download/v1beta/files/f:download", True),
        ("/v1/models/gemini-2.5-pro:generateContent", True),
        ("/v1/models/gemini-2.5-pro:countTokens", True),
        ("/v1/models/imagen-4:predict", True),
        ("/v1/models/moonshotai/kimi-k2:free", False),
        ("/v1/models/ft:gpt-4o:acme::abc", False),
        ("/v1/models", False),
        ("/v1", False),
        ("/upload/v1/files", True),
        ("/uploads/v1beta", False),
    ],
)
def test_geminis_own_paths_begin_with_a_version_of_googles(path: str, found: bool) -> None:
    assert is_native(path) is found


# -- the caller's key


@pytest.mark.parametrize(
    ("pairs", "key"),
    [
        ([], None),
        ([(b"Authorization", b"Bearer k")], b"k"),
        ([(b"authorization", b"bearer  k ")], b"k"),
        ([(b"Authorization", b"Basic dTpw")], b"Basic dTpw"),
        ([(b"X-Api-Key", b" k ")], b"k"),
        ([(b"api-key", b"k")], b"k"),
        ([(b"X-Goog-Api-Key", b"k")], b"k"),
        ([(b"x-api-key", b"second"), (b"authorization", b"Bearer first")], b"first"),
        ([(b"authorization", b""), (b"x-api-key", b"k")], b"k"),
    ],
)
def test_callers_send_their_key_in_one_of_four_headers(
    pairs: list[Pair], key: bytes | None
) -> None:
    assert caller_key(Headers(pairs)) == key


# -- headers


def test_what_is_between_two_peers_or_ours_stays_here() -> None:
    headers = [
        (name, b"x")
        for name in (
            b"Host", b"Cookie", b"X-Agent-Session-Id", b"x-agentstate-token", b"X-Forwarded-For",
            b"Proxy-Authorization", b"Connection", b"TE", b"Expect", b"Accept-Encoding",
            b"Content-Length", b"X-Session-Id", b"User-Agent", b"OpenAI-Organization",
        )
    ]  # fmt: skip
    names = [name for name, _ in upstream_headers(Headers(headers), target(takes_callers_key=True))]
    assert names == [
        b"X-Session-Id",
        b"User-Agent",
        b"OpenAI-Organization",
        b"accept-encoding",
        b"x-agentstate-hop",
    ]


def test_what_the_client_says_is_for_its_connection_alone_stays_here() -> None:
    pairs = [(b"Connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"connection", b"X-Other"),
             (b"X-OTHER", b"1"), (b"x-kept", b"1")]  # fmt: skip

    assert sent(pairs, target()) == [(b"x-kept", b"1")]


def test_the_callers_key_stays_in_the_header_it_came_in() -> None:
    pairs = [(b"X-Api-Key", b"k"), (b"Authorization", b"Bearer k")]

    assert sent(pairs, target(takes_callers_key=True)) == pairs


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"authorization", b"Bearer own"),
        (b"x-api-key", b"own"),
        (b"x-goog-api-key", b"own"),
    ],
)
def test_a_configured_key_takes_the_place_of_whatever_the_caller_sent(
    header: bytes, expected: bytes
) -> None:
    pairs = [(b"Authorization", b"Bearer k"), (b"x-api-key", b"k"), (b"API-Key", b"k"),
             (b"X-Goog-Api-Key", b"k")]  # fmt: skip

    assert sent(pairs, target(key="own", key_header=header)) == [(header, expected)]
    assert sent(pairs, target()) == []


def test_a_stranger_gets_only_what_says_nothing_of_anybody() -> None:
    pairs = [
        (b"Accept", b"text/event-stream"), (b"Content-Type", b"application/json"),
        (b"User-Agent", b"agent/1"), (b"Traceparent", b"00-1"), (b"Tracestate", b"x"),
        (b"OpenAI-Organization", b"org"), (b"OpenAI-Project", b"p"), (b"X-Session-Id", b"s"),
        (b"Idempotency-Key", b"i"), (b"X-Custom-Token", b"t"), (b"Anthropic-Beta", b"b"),
    ]  # fmt: skip

    assert sent(pairs, target(key="own", is_stranger=True)) == [
        *pairs[:4],
        (b"authorization", b"Bearer own"),
    ]


def test_a_stranger_is_told_what_form_a_body_is_in() -> None:
    pairs = [(b"Content-Encoding", b"gzip"), (b"Anthropic-Version", b"2023-06-01"),
             (b"Anthropic-Beta", b"b")]  # fmt: skip
    to = target(key="own", key_header=b"x-api-key", is_stranger=True)

    assert sent(pairs, to) == [*pairs, (b"x-api-key", b"own")]
    # One of another form has that form's own version.
    other = target(key="own", key_header=b"x-api-key", is_stranger=True, dialect="messages")
    assert sent(pairs, other) == [pairs[0], (b"x-api-key", b"own")]


@pytest.mark.parametrize(
    ("callers", "header", "expected"),
    [
        ((b"Authorization", b"Bearer k"), b"x-api-key", b"k"),
        ((b"X-Api-Key", b"k"), b"authorization", b"Bearer k"),
        ((b"X-Goog-Api-Key", b"k"), b"authorization", b"Bearer k"),
    ],
)
def test_in_another_form_the_callers_key_goes_where_that_has_its_keys(
    callers: Pair, header: bytes, expected: bytes
) -> None:
    to = target(key_header=header, takes_callers_key=True, dialect="another")

    assert sent([callers], to) == [(header, expected)]
    assert sent([], to) == []
    assert sent([callers], target(key_header=header, takes_callers_key=True)) == [callers]


def test_in_another_form_nothing_goes_out_that_a_client_says_to_its_own_vendor() -> None:
    pairs = [
        (b"OpenAI-Organization", b"org"), (b"Anthropic-Version", b"1"), (b"X-Goog-User-Project",
         b"p"), (b"X-Custom", b"c"),
    ]  # fmt: skip

    assert sent(pairs, target(dialect="another")) == [(b"X-Custom", b"c")]
    assert sent(pairs, target()) == pairs


CANARY = b"sk-canary-7"
NAMES = (b"Authorization", b"X-Api-Key", b"Api-Key", b"X-Goog-Api-Key", b"Cookie", b"X-Agent-Token",
         b"Proxy-Authorization", b"X-Whatever", b"OpenAI-Organization", b"Forwarded", b"Via",
         b"X-Forwarded-Authorization")  # fmt: skip
headers = st.lists(
    st.tuples(
        st.sampled_from(NAMES) | st.from_regex(rb"[A-Za-z][A-Za-z-]{0,20}", fullmatch=True),
        st.sampled_from((CANARY, b"Bearer " + CANARY, b"Basic " + CANARY, b"k=" + CANARY)),
    ),
    max_size=8,
)


@given(headers)
def test_no_stranger_ever_learns_a_value_of_the_callers(pairs: list[Pair]) -> None:
    harmless = (b"accept", b"content-type", b"user-agent", b"traceparent")
    odd = [pair for pair in pairs if pair[0].lower() not in harmless]

    for key in (None, "own"):
        found = upstream_headers(Headers(odd), target(key=key, is_stranger=True))
        assert not any(CANARY in value for _, value in found)


@given(headers)
def test_where_a_configured_key_is_used_no_header_for_keys_has_the_callers(
    pairs: list[Pair],
) -> None:
    found = upstream_headers(Headers(pairs), target(key="own"))

    keys = [pair for pair in found if pair[0].lower() in
            (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")]  # fmt: skip
    assert keys == [(b"authorization", b"Bearer own")]


@given(headers, st.booleans(), st.booleans())
def test_nothing_that_is_ours_or_of_one_hop_goes_out(
    pairs: list[Pair], takes_key: bool, is_stranger: bool
) -> None:
    to = target(takes_callers_key=takes_key, is_stranger=is_stranger)
    names = [name.lower() for name, _ in upstream_headers(Headers(pairs), to)]

    assert not HOP_BY_HOP.intersection(names)
    assert not {b"cookie", b"forwarded", b"via", b"host"}.intersection(names)
    assert [name for name in names if name.startswith((b"x-agent", b"x-forwarded"))] == [
        b"x-agentstate-hop"
    ]
    assert names.count(b"accept-encoding") == 1
