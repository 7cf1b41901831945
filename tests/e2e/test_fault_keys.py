"""No provider ever sees what is not meant for it: another one's key, or anything of the caller's.

Each provider has a key and an upstream of its own, and the caller carries canaries in every place
where a key could be. Whichever way a call goes, all that each upstream received is searched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.fault_rig import FaultyUpstream, ask_model, forward_toml
from tests.e2e.forms import CHAT, MESSAGES, RESPONSES, TEXT, Form
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Pair
from tests.helpers.upstream import Received, json_reply

pytestmark = pytest.mark.slow

CANARY = b"canary"
QUERY = "?key=canary-query&api-version=2026-11-01"
KEYS: tuple[Pair, ...] = tuple(
    (name.encode(), f"{prefix}canary-{name}".encode())
    for name, prefix in (
        ("authorization", "Bearer "),
        ("x-api-key", ""),
        ("api-key", ""),
        ("x-goog-api-key", ""),
        ("proxy-authorization", "Basic "),
        ("cookie", "session="),
        ("openai-organization", "org-"),
        ("openai-project", ""),
        ("anthropic-account", ""),
        ("helicone-auth", "Bearer "),
        ("x-portkey-api-key", ""),
        ("x-amz-security-token", ""),
        ("x-custom-account", ""),
        ("x-forwarded-for", ""),
    )
)
CARRIED = (*KEYS, (b"idempotency-key", b"once-only"))  # which is no secret, and on record

# name: (form, has a row in the file). The built-in ones get their keys from the environment.
PROVIDERS: dict[str, tuple[Form, bool]] = {
    "openai": (CHAT, False),
    "anthropic": (MESSAGES, False),
    "chatty": (CHAT, True),
    "wordy": (MESSAGES, True),
    "newer": (RESPONSES, True),
}
SERIAL = itertools.count()


def key_of(provider: str) -> str:
    """Return the configured key of a provider."""
    return f"sk-secret-of-{provider}"


@dataclass(slots=True)
class House:
    """A proxy before an upstream for each provider."""

    proxy: Proxy
    upstreams: dict[str, FaultyUpstream]

    def asked(self, provider: str, model: str) -> list[Received]:
        """Return what an upstream got for a model."""
        return self.upstreams[provider].asked.get(model, [])


def row_of(name: str, form: Form, port: int, models: str = "") -> str:
    """Return a provider's row."""
    base = f"http://127.0.0.1:{port}" + ("" if form is MESSAGES else "/v1")
    return (
        f'[[provider]]\nname = "{name}"\ndialect = ["{form.dialect}"]\nbase_url = "{base}"\n'
        f'api_key = "{key_of(name)}"\n' + (f'models = ["{models}"]\n' if models else "")
    )


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The endpoints' own providers are at addresses of their own."""
    folder = tmp_path_factory.mktemp("keys")
    with ExitStack() as stack:
        yield open_house(stack, folder, has_vendor=False)


@pytest.fixture(scope="module")
def patterned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """OpenAI is at OpenAI, which has no other models than its own: those go elsewhere by name."""
    folder = tmp_path_factory.mktemp("patterns")
    with ExitStack() as stack:
        yield open_house(stack, folder, has_vendor=True)


def open_house(stack: ExitStack, folder: Path, *, has_vendor: bool) -> House:
    """Start a house; `has_vendor`: the address of OpenAI is not changed."""
    upstreams = {name: stack.enter_context(FaultyUpstream()) for name in PROVIDERS}
    rows = [
        row_of(name, form, upstreams[name].port, f"{name}-*")
        for name, (form, has_row) in PROVIDERS.items()
        if has_row
    ]
    config = forward_toml(retries=0) + "\n".join(rows)
    (folder / "agentstate.toml").write_text(config, encoding="utf-8")
    proxy = Proxy(
        upstream_url="http://127.0.0.1:9",
        db=folder / "record.db",
        env={
            "OPENAI_BASE_URL": "" if has_vendor else f"{upstreams['openai'].url}/v1",
            "ANTHROPIC_BASE_URL": upstreams["anthropic"].url,
            "OPENAI_API_KEY": key_of("openai"),
            "ANTHROPIC_API_KEY": key_of("anthropic"),
            "HTTPS_PROXY": "http://127.0.0.1:9",  # nobody's: what went to a vendor would end there
        },
    )
    return House(stack.enter_context(proxy), upstreams)


def bytes_of(request: Received) -> bytes:
    """Return all that came with a request."""
    headers = b"\n".join(name + b": " + value for name, value in request.headers)
    return b"\n".join((request.target.encode("latin-1"), headers, request.body))


def check_own_key_only(request: Received, provider: str) -> None:
    """A provider that the caller does not know got its own key, in its place, and no other."""
    raw = bytes_of(request)
    form, _ = PROVIDERS[provider]
    key = key_of(provider)
    place, value = ("x-api-key", key) if form is MESSAGES else ("authorization", f"Bearer {key}")
    assert request.header(place) == value
    assert raw.count(key.encode()) == 1
    assert CANARY not in raw.lower()
    assert b"once-only" not in raw
    assert raw.count(b"sk-secret") == 1


def check_callers_keys_only(request: Received) -> None:
    """The provider whose endpoint was called got what the caller sent it, and nothing of ours."""
    assert request.header("authorization") == "Bearer canary-authorization"
    assert b"sk-secret" not in bytes_of(request)
    assert request.header("cookie") is None
    assert request.header("proxy-authorization") is None
    assert request.header("x-forwarded-for") is None


def ask_with_canaries(
    house: House,
    form: Form,
    model: str,
    *headers: Pair,
    session: str,
    streams: bool,
    path: str | None = None,
) -> None:
    """Ask once, and be answered; nothing of any key comes back."""
    got = ask_model(
        house.proxy, form, model, session=session, streams=streams,
        headers=(*CARRIED, *headers), path=(path or form.path) + QUERY, has_key=False,
    )  # fmt: skip
    assert (got.status, form.read(got).text) == (200, TEXT)
    assert b"sk-secret" not in got.wire
    assert CANARY not in bytes(got.wire).lower()


def others(*names: str) -> list[str]:
    """Return the providers that have no business with a call."""
    return [name for name in PROVIDERS if name not in names]


FALLBACKS = [
    (form, stand_in)
    for form in (CHAT, MESSAGES, RESPONSES)
    for stand_in in PROVIDERS
    if stand_in != form.own
]


@pytest.mark.parametrize(
    ("form", "stand_in"), FALLBACKS, ids=[f"{form.name}-{name}" for form, name in FALLBACKS]
)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("has_session", [False, True])
def test_a_fallback_gets_its_own_key_and_nothing_of_the_callers(
    house: House, form: Form, stand_in: str, streams: bool, has_session: bool
) -> None:
    name = f"m{next(SERIAL)}"
    house.upstreams[form.own].put(name, form.refusal(503))
    house.upstreams[stand_in].put(name, PROVIDERS[stand_in][0].answer(name, streams=streams))

    ask_with_canaries(
        house, form, name, (b"x-agent-fallback-model", f"{stand_in}/{name}".encode()),
        session=name if has_session else "", streams=streams,
    )  # fmt: skip

    (first,) = house.asked(form.own, name)
    check_callers_keys_only(first)
    (second,) = house.asked(stand_in, name)
    check_own_key_only(second, stand_in)
    for provider in others(form.own, stand_in):
        assert not house.asked(provider, name)


@pytest.mark.parametrize(
    ("form", "named"), FALLBACKS, ids=[f"{form.name}-{name}" for form, name in FALLBACKS]
)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("has_session", [False, True])
def test_a_provider_named_before_the_model_gets_its_own_key_and_nothing_of_the_callers(
    house: House, form: Form, named: str, streams: bool, has_session: bool
) -> None:
    name = f"m{next(SERIAL)}"
    house.upstreams[named].put(name, PROVIDERS[named][0].answer(name, streams=streams))

    session = name if has_session else ""
    ask_with_canaries(house, form, f"{named}/{name}", session=session, streams=streams)

    (request,) = house.asked(named, name)
    check_own_key_only(request, named)
    for provider in others(named):
        assert not house.asked(provider, name)


@pytest.mark.parametrize("named", ["chatty", "wordy", "newer"])
@pytest.mark.parametrize("form", [CHAT, RESPONSES], ids=lambda form: str(form.name))
@pytest.mark.parametrize("has_session", [False, True])
def test_a_provider_found_by_its_models_gets_its_own_key_and_nothing_of_the_callers(
    patterned: House, form: Form, named: str, has_session: bool
) -> None:
    name = f"{named}-{next(SERIAL)}"
    patterned.upstreams[named].put(name, PROVIDERS[named][0].answer(name, streams=False))

    session = name if has_session else ""
    ask_with_canaries(patterned, form, name, session=session, streams=False)

    (request,) = patterned.asked(named, name)
    check_own_key_only(request, named)


@pytest.mark.parametrize("stand_in", ["openai", "anthropic", "wordy", "newer"])
def test_the_key_for_a_provider_in_the_url_stays_with_it(house: House, stand_in: str) -> None:
    name = f"m{next(SERIAL)}"
    house.upstreams["chatty"].put(name, CHAT.refusal(503))
    house.upstreams[stand_in].put(name, PROVIDERS[stand_in][0].answer(name, streams=False))

    ask_with_canaries(
        house, CHAT, name, (b"x-agent-fallback-model", f"{stand_in}/{name}".encode()),
        session=name, streams=False, path=f"/p/chatty{CHAT.path}",
    )  # fmt: skip

    (first,) = house.asked("chatty", name)
    check_callers_keys_only(first)
    (second,) = house.asked(stand_in, name)
    check_own_key_only(second, stand_in)


def test_another_model_of_the_same_provider_gets_the_callers_key_and_no_name_of_its_first_call(
    house: House,
) -> None:
    """An upstream would take the second call for the first one, asked again."""
    name = f"m{next(SERIAL)}"
    house.upstreams["openai"].put(name, CHAT.refusal(503))
    house.upstreams["openai"].put(f"{name}-other", CHAT.answer(f"{name}-other", streams=False))

    ask_with_canaries(
        house, CHAT, name, (b"x-agent-fallback-model", f"{name}-other".encode()),
        session=name, streams=False,
    )  # fmt: skip

    (first,) = house.asked("openai", name)
    (second,) = house.asked("openai", f"{name}-other")
    for request in (first, second):
        check_callers_keys_only(request)
    assert first.header("idempotency-key") == "once-only"
    assert second.header("idempotency-key") is None


def test_no_key_is_on_record_or_in_the_log(house: House) -> None:
    name = f"m{next(SERIAL)}"
    echo = json_reply({"error": {"message": f"Incorrect API key: {key_of('chatty')}"}}, status=401)
    house.upstreams["openai"].put(name, CHAT.refusal(503))
    house.upstreams["chatty"].put(name, echo)

    got = ask_model(
        house.proxy, CHAT, name, session=name, path=CHAT.path + QUERY, has_key=False,
        headers=(*CARRIED, (b"x-agent-fallback-model", f"chatty/{name}".encode())),
    )  # fmt: skip

    assert got.status == 503
    assert b"sk-secret" not in got.wire
    (step,) = house.proxy.settled_steps(name)
    assert [each["status"] for each in step["attempts"]] == [503, 401]
    assert "sk-secret" not in str(step)
    assert "canary" not in str(step)
    stored = house.proxy.stored_bytes()
    assert b"sk-secret" not in stored
    assert CANARY not in stored.lower()
