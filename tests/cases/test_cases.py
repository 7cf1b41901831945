"""Every case from the field, played against the real proxy: one test per case and matrix value.

The proxies are shared between cases that want the same configuration, each with its own session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cases.files import Case, load_cases
from tests.cases.playing import env_of, service_of
from tests.cases.runner import play
from tests.cases.tables import DISK_FULL
from tests.cases.told import configuration_of
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Upstream

pytestmark = pytest.mark.slow


class Proxies:
    """One proxy per configuration, started when first asked for."""

    def __init__(self, folder: Path, life: ExitStack) -> None:
        self._folder = folder
        self._life = life  # stops them all; each must end cleanly
        self._found: dict[tuple[tuple[str, str], ...], tuple[Proxy, Upstream]] = {}

    def of(self, case: Case) -> tuple[Proxy, Upstream]:
        """Return the shared proxy of a case's configuration and its upstream."""
        env = env_of(case)
        key = tuple(sorted(env.items()))
        if key not in self._found or not self._found[key][0].is_running:
            upstream = self._life.enter_context(Upstream())
            db = self._folder / f"{case.name}.db"
            proxy = self._life.enter_context(Proxy(upstream_url=upstream.url, db=db, env=env))
            self._found[key] = proxy, upstream
        return self._found[key]


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    """The shared proxies."""
    with ExitStack() as life:
        yield Proxies(tmp_path_factory.mktemp("cases"), life)


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_case(case: Case, proxies: Proxies, tmp_path: Path) -> None:
    if case.later is not None:
        pytest.skip(case.later)
    if case.needs_own_proxy:
        _play_alone(case, tmp_path)
        return
    proxy, upstream = proxies.of(case)
    play(case, proxy, upstream)


def _play_alone(case: Case, folder: Path) -> None:
    with ExitStack() as life:
        upstream = life.enter_context(Upstream())
        if (service := service_of(case)) is not None:
            life.enter_context(service)
            (folder / "agentstate.toml").write_text(configuration_of(service))
        proxy = life.enter_context(
            Proxy(upstream_url=upstream.url, db=folder / "own.db", env=env_of(case))
        )
        if case.setup.get("disk") == DISK_FULL:
            proxy.set_disk(is_full=True)
        try:
            play(case, proxy, upstream, service)
        finally:
            proxy.kill()  # it was hurt on purpose, or has a long answer left to read


def test_every_case_is_there_and_most_are_played() -> None:
    cases = load_cases()
    assert len({case.file_id for case in cases}) == 112
    assert sum(case.later is None for case in cases) > sum(case.later is not None for case in cases)
