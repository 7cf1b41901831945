"""The fixture `agentstate` of pytest: a proxy on a cassette beside the test.

    def test_the_agent(agentstate):
        with agentstate.session() as run:
            assert run.openai().responses.create(model="gpt-4o-mini", input="Name three primes.")

The cassette is cassettes/<module>/<test>.jsonl beside the test file. It answers, and nothing is
sent anywhere; with --agentstate-record the models are asked, and it is written. A call that it does
not answer fails the test, also where the agent swallowed the error.

pytest loads this module at its start, in every project that has the package: so nothing but the
standard library is imported before a test asks for the fixture.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agentstate.tape_proxy import TapeProxy

RECORD = "AGENTSTATE_RECORD"
NO = ("", "0", "false", "no", "off")
NAME_CHARS_MAX = 120  # file systems take 255 bytes
_UNSAFE = re.compile(r"[^\w.\[\]=+,@-]+", re.ASCII)

_PROXY = pytest.StashKey["TapeProxy"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("agentstate")
    group.addoption(
        "--agentstate-record",
        action="store_true",
        help="ask the models and write the cassettes of tests that use the fixture agentstate "
        f"(also: {RECORD}=1)",
    )
    group.addoption(
        "--agentstate-keep-secrets",
        action="store_true",
        help="leave answers as they came when recording, secrets included",
    )


@pytest.fixture
def agentstate(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TapeProxy]:
    """A proxy on the test's cassette; base URLs in the environment lead to it."""
    from agentstate.ground.errors import AgentStateError
    from agentstate.ground.settings import read_environment
    from agentstate.tape_proxy import TapeProxy

    config = request.config
    file = cassette_of(request.node)
    records = bool(config.getoption("--agentstate-record"))
    records = records or read_environment().get(RECORD, "").lower() not in NO
    proxy = TapeProxy(
        file,
        file.stem,
        records=records,
        folder=config.rootpath,
        keeps_secrets=bool(config.getoption("--agentstate-keep-secrets")),
    )
    try:
        proxy.start()
    except AgentStateError as error:
        pytest.fail(f"agentstate: {error.message}", pytrace=False)
    request.node.stash[_PROXY] = proxy
    for name, text in proxy.variables().items():
        monkeypatch.setenv(name, text)
    if records:
        shown = file.relative_to(config.rootpath) if file.is_relative_to(config.rootpath) else file
        _say(config, f"recording {shown}; what waits for a person: agentstate approvals watch "
             f"--url {proxy.url}")  # fmt: skip
    yield proxy
    late = _missed(request.node)  # by another fixture, at its end
    try:
        proxy.stop()
    except AgentStateError as error:
        pytest.fail(f"agentstate: {error.message} {file} is as it was.", pytrace=False)
    if late:
        pytest.fail(late, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test whose calls found no answer."""
    try:
        found = yield
    except Exception as error:
        if said := _missed(item):
            error.add_note(said)
        raise
    if said := _missed(item):
        pytest.fail(said, pytrace=False)
    return found


def cassette_of(item: pytest.Item) -> Path:
    """Return where the cassette of a test is."""
    names = [part for part in item.nodeid.split("::")[1:-1] if part]  # its classes
    return item.path.parent / "cassettes" / item.path.stem / f"{file_name(*names, item.name)}.jsonl"


def file_name(*names: str) -> str:
    """Return a name that file systems take, and that no other test of the file has.

    >>> file_name("TestPrimes", "test_three[gpt-4o]")
    'TestPrimes.test_three[gpt-4o]'
    """
    whole = ".".join(names)
    safe = _UNSAFE.sub("-", whole)[:NAME_CHARS_MAX]
    if safe == whole:
        return whole
    return f"{safe}-{hashlib.sha256(whole.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _missed(item: pytest.Item) -> str:
    proxy = item.stash.get(_PROXY, None)
    lines = [] if proxy is None else proxy.missed()
    if not lines:
        return ""
    again = f"if it is meant to differ: pytest --agentstate-record {item.nodeid!r}"
    return "\n".join(("agentstate: a call had no recorded answer:", *lines, again))


def _say(config: pytest.Config, text: str) -> None:
    """Say a line on the terminal, whatever is captured."""
    capturing = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if capturing is not None and reporter is not None:
        with capturing.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"agentstate: {text}")
