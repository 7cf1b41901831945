"""Every case from the field, played against the real proxy: one test per case and matrix value.

The proxies are shared between cases that want the same configuration, each with its own session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cases.files import Case, load_cases
from tests.cases.runner import play
from tests.cases.staging import Stage, env_of, set_up
from tests.cases.tables import DISK_FULL

pytestmark = pytest.mark.slow


class Stages:
    """One proxy per configuration, started when first asked for."""

    def __init__(self, folder: Path, life: ExitStack) -> None:
        self._folder = folder
        self._life = life  # stops them all; each must end cleanly
        self._found: dict[tuple[tuple[str, str], ...], Stage] = {}

    def of(self, case: Case) -> Stage:
        """Return the shared stage of a case's configuration."""
        key = tuple(sorted(env_of(case).items()))
        if key not in self._found or not self._found[key].proxy.is_running:
            self._found[key] = set_up(case, self._folder, self._life)
        return self._found[key]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    """The shared stages."""
    with ExitStack() as life:
        yield Stages(tmp_path_factory.mktemp("cases"), life)


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_case(case: Case, stages: Stages, tmp_path: Path) -> None:
    if case.later is not None:
        pytest.skip(case.later)
    if case.needs_own_proxy:
        _play_alone(case, tmp_path)
    else:
        play(case, stages.of(case))


def _play_alone(case: Case, folder: Path) -> None:
    with ExitStack() as life:
        stage = set_up(case, folder, life)
        if case.setup.get("disk") == DISK_FULL:
            stage.proxy.set_disk(is_full=True)
        try:
            play(case, stage)
        finally:
            if case.harms_proxy:
                stage.proxy.kill()  # it was hurt on purpose, or has a long answer left to read


def test_every_case_is_there_and_most_are_played() -> None:
    cases = load_cases()
    assert len({case.file_id for case in cases}) == 112
    assert sum(case.later is None for case in cases) > sum(case.later is not None for case in cases)
