"""Secrets are taken out of what is kept and given away, and nothing else changes."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.canonical import Number
from agentstate.ground.redaction import (
    ASSIGNED,
    KEY,
    KINDS,
    NOTHING_KNOWN,
    PATTERN,
    Redactor,
    count_marks,
    is_known_secret,
    is_redacted,
    looks_random,
    redact_text,
)
from agentstate.ground.secrets import mark_of

# Put together, so that no scanner takes this file for a leak. None of them was ever given out.
DIGITS = "a1B2" * 12
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxIn0" + ".c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE" + " KEY-----\nMIIEow+/=\nabc\n-----END RSA PRIVATE" + " KEY-----"
SECRETS = [
    ("anthropic_key", "sk-ant-" + "api03-" + DIGITS),
    ("openai_key", "sk-" + DIGITS),
    ("openai_key", "sk-proj-" + DIGITS[:20] + "_" + DIGITS),
    ("openai_key", "sk-or-v1-" + DIGITS),
    ("google_key", "AIza" + DIGITS[:35]),
    ("groq_key", "gsk_" + DIGITS),
    ("xai_key", "xai-" + DIGITS),
    ("huggingface_key", "hf_" + DIGITS[:34]),
    ("github_token", "ghp_" + DIGITS[:36]),
    ("github_token", "gho_" + DIGITS[:36]),
    ("github_token", "github_pat_" + DIGITS[:22] + "_" + DIGITS),
    ("gitlab_token", "glpat-" + DIGITS[:20]),
    ("aws_key", "AKIA" + "ABCD2345" * 2),
    ("aws_key", "ASIA" + "ABCD2345" * 2),
    ("slack_token", "xoxb-" + "1234567890-1234567890-" + DIGITS[:24]),
    ("slack_token", "xoxp-" + "1234567890-" + DIGITS[:24]),
    ("stripe_key", "sk_live_" + DIGITS[:24]),
    ("jwt", JWT),
    ("private_key", PEM),
    ("private_key", PEM.replace("RSA ", "")),
    ("bearer_token", "Bearer " + DIGITS),
]
HARMLESS = [
    "sk-learn-compatible-estimators-everywhere",
    "task-1234567890abcdefghij",
    "the bearer of this letter",
    "Bearer authentication-is-described-here",
    "xai- and hf_ and ghp_short",
    "AKIAABCD",
    "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
    "http://localhost:8080/a@b",
    "https://example.org/x:y@z",
    "mailto:ann@example.org",
    "eyJhbGciOiJIUzI1NiJ9 is no token by itself",
]


def redact(value: Any) -> tuple[Any, Counter[str]]:
    cleared = NOTHING_KNOWN.value(value)
    return cleared, count_marks(cleared)


def shown(kind: str) -> str:
    return f"Bearer {mark_of(kind)}" if kind == "bearer_token" else mark_of(kind)


def test_every_kind_is_tried() -> None:
    assert {kind for kind, _ in SECRETS} | {"url_password", ASSIGNED} == set(KINDS)


@pytest.mark.parametrize(("kind", "secret"), SECRETS)
@pytest.mark.parametrize("around", ["{}", "key={} and so on", '"{}"', "({}).", "\n{}\n", "é{}é"])
def test_a_secret_becomes_a_mark(kind: str, secret: str, around: str) -> None:
    before, after = around.split("{}")

    cleared, counts = redact(around.format(secret))

    assert cleared == f"{before}{shown(kind)}{after}"
    assert counts == {kind: 1}


def test_a_private_key_whose_end_was_cut_off_goes_with_what_may_be_of_it() -> None:
    cut = json.dumps(["key: " + PEM[:-32] + "...", "next"])

    cleared, counts = redact(cut)

    assert cleared == f'["key: {mark_of("private_key")}", "next"]'
    assert counts == {"private_key": 1}


def test_a_mark_takes_no_half_of_an_escape() -> None:
    said = PEM[:-40] + '"in quotes" \\ and so on'

    cleared, _ = redact(json.dumps({"said": said}))

    assert json.loads(cleared)["said"].endswith('"in quotes" \\ and so on')


def test_a_password_in_a_url_goes_and_the_url_stays() -> None:
    sent = "postgres://app:" + "hunter2" + "@db.example.org:5432/x"

    assert redact(sent)[0] == f"postgres://{mark_of('url_password')}@db.example.org:5432/x"


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == (text, Counter())


@pytest.mark.parametrize(("kind", "secret"), SECRETS)
@pytest.mark.parametrize("nesting", [1, 2, 3])
def test_json_in_a_text_is_json_afterwards(kind: str, secret: str, nesting: int) -> None:
    value: Any = {"out": f"one\n{secret}\ttwo", "list": [secret, "x"], "last": secret}
    text = value
    for _ in range(nesting):
        text = json.dumps(text)

    cleared, counts = redact({"arguments": text})

    read: Any = cleared["arguments"]
    for _ in range(nesting):
        read = json.loads(read)
    mark = shown(kind)
    assert read == {"out": f"one\n{mark}\ttwo", "list": [mark, "x"], "last": mark}
    assert counts == {kind: 3}


def test_values_of_every_type_are_gone_through_and_kept() -> None:
    number = Number("1.10")
    secret = "sk-" + DIGITS
    sent = {"a": [1, True, None, number, {"b": secret}], "c": "x"}

    cleared, counts = redact(sent)

    assert cleared == {"a": [1, True, None, number, {"b": mark_of("openai_key")}], "c": "x"}
    assert sent["a"][4] == {"b": secret}  # type: ignore[index]
    assert counts == {"openai_key": 1}


def test_keys_of_objects_are_cleared_and_stay_apart() -> None:
    mark = mark_of("openai_key")

    cleared, counts = redact({"sk-" + DIGITS: 1, "sk-" + DIGITS[::-1]: 2, "k": 3})

    assert cleared == {mark: 1, mark + "+": 2, "k": 3}
    assert counts == {"openai_key": 2}


def test_a_mark_is_no_secret() -> None:
    for kind, secret in SECRETS:
        cleared, _ = redact(secret)
        assert redact(cleared) == (cleared, Counter([kind])), kind


PIECES = st.lists(
    st.sampled_from(
        [
            *(secret for _, secret in SECRETS),
            PEM[:-40],
            *HARMLESS,
            "password=",
            '"api_key": "',
            "q7Rz2Lw9Kp4Xc8Vb",
            '"',
            "\\",
            "\n",
            "{",
            "}",
            ",",
            ":",
            " ",
        ]
    ),
    max_size=8,
).map("".join)


@given(st.recursive(PIECES, lambda inner: st.lists(inner) | st.dictionaries(PIECES, inner)))
def test_json_stays_json_whatever_stands_in_it(value: Any) -> None:
    cleared, _ = redact(json.dumps(value))

    json.loads(cleared)


@pytest.mark.parametrize(
    "piece",
    ["sk-", "sk-a1-", "eyJ-", "eyJaaaaaaaaa.", "://a:", "Bearer ", "xoxb-", "-----BEGIN ", "AIza",
     "-----BEGIN PRIVATE" " KEY-----", "\\n", "A", "hf_", "github_pat_"],
)  # fmt: skip
def test_no_text_is_gone_through_twice(piece: str) -> None:
    def took_s(times: int) -> float:
        text = piece * times
        best = 9.0
        for _ in range(3):
            began = time.perf_counter()
            redact_text(text)
            best = min(best, time.perf_counter() - began)
        return best

    # Eight times the text: a quadratic look would take 64 times as long.
    assert took_s(40_000) < 30 * max(took_s(5_000), 0.001)


RANDOM = "q7Rz2Lw9" + "Kp4Xc8Vb"
MARK = mark_of(ASSIGNED)


@pytest.mark.parametrize(
    ("text", "cleared"),
    [
        (f"password={RANDOM}", f"password={MARK}"),
        (f"DB_PASSWORD = {RANDOM};", f"DB_PASSWORD = {MARK};"),
        (f"client-secret: '{RANDOM}'", f"client-secret: '{MARK}'"),
        (f"https://x.org/?access_token={RANDOM}&page=2", f"https://x.org/?access_token={MARK}&page=2"),
        (f'{{"apiKey": "{RANDOM}"}}', f'{{"apiKey": "{MARK}"}}'),
        (json.dumps(f'{{"api_key": "{RANDOM}"}}'), json.dumps(f'{{"api_key": "{MARK}"}}')),
        (f"password={RANDOM}sk-{DIGITS}", f"password={MARK}"),
    ],
)  # fmt: skip
def test_what_is_given_to_a_name_of_secrets_goes_if_it_looks_like_chance(
    text: str, cleared: str
) -> None:
    assert redact(text)[0] == cleared


@pytest.mark.parametrize(
    "text",
    [
        f"user={RANDOM}",
        f"next_page_token={RANDOM}",  # of a page, and shown in every list
        "password=correct-horse-battery",
        "max_tokens: 4096, api_key: env:OPENAI_API_KEY",
        "password: 123456789012",
        f"the password {RANDOM}",
        "secret=aaaaaaaaaaaa1",
        "password=\\nq7Rz2Lw9Kp4Xc8Vb",  # an escape begins there, in JSON
    ],
)
def test_other_values_stay(text: str) -> None:
    assert redact(text) == (text, Counter())


def test_the_value_of_such_a_key_goes_from_an_object() -> None:
    schema = {"password": {"type": "string"}}
    sent = {"arguments": {"password": RANDOM, "user": RANDOM, "db-passwd": "hunter2"}, "s": schema}

    cleared, counts = redact(sent)

    assert cleared == {
        "arguments": {"password": MARK, "user": RANDOM, "db-passwd": "hunter2"},
        "s": schema,
    }
    assert counts == {ASSIGNED: 1}


def test_keys_that_are_known_go_wherever_they_stand() -> None:
    key = "own-key-0123456789"
    redactor = Redactor().with_keys([key])

    assert redactor.value({"a": [f"x{key}y"]}) == {"a": [f"x{mark_of(KEY)}y"]}
    assert redactor.without_keys(b"..own-key-0123456789..") == f"..{mark_of(KEY)}..".encode()
    assert redactor.text_without_keys(f"sk-{DIGITS} {key}") == f"sk-{DIGITS} {mark_of(KEY)}"
    untouched = b"nothing"
    assert redactor.without_keys(untouched) is untouched


@pytest.mark.parametrize(
    "key", ["", "test", "not-needed", "sk-no-key-required", "1" * 40, "a1" * 20]
)
def test_a_placeholder_is_no_known_secret(key: str) -> None:
    assert not is_known_secret(key)
    assert Redactor([key]).text(f"it is {key} here") == f"it is {key} here"


def test_patterns_take_out_what_was_configured_and_look_into_no_mark() -> None:
    redactor = Redactor(patterns=[r"\b\d{3}-\d{2}-\d{4}\b", "secret", ""])

    assert redactor.text(f"ssn 123-45-6789, key sk-{DIGITS}, no secret") == (
        f"ssn {mark_of(PATTERN)}, key {mark_of('openai_key')}, no {mark_of(PATTERN)}"
    )


def test_it_is_told_whether_something_was_taken_out() -> None:
    assert is_redacted({"a": [{"b": f"x {mark_of('jwt')}"}]})
    assert is_redacted({mark_of("jwt"): 1})
    assert not is_redacted({"a": ["[secret]", "secret:jwt", None, 1.5]})


def test_chance_has_letters_and_digits_and_few_repetitions() -> None:
    assert looks_random(RANDOM)
    assert not looks_random(RANDOM[:11])
    assert not looks_random("abcdefghijklmnop")
    assert not looks_random("1234567890123456")
    assert not looks_random("abababababab1212")


KNOWN = "known-key-" + "9876543210"


@given(st.recursive(PIECES, lambda inner: st.lists(inner) | st.dictionaries(PIECES, inner)))
def test_what_was_cleared_once_stays_as_it_is(value: Any) -> None:
    redactor = Redactor([KNOWN], [r"b=\w+"])

    once = redactor.value(value)

    assert redactor.value(once) == once
