"""The table of dialects, and the contract run over it."""

from __future__ import annotations

import pytest

from agentstate.dialects import DIALECTS, dialect_by_name, dialect_for_path
from tests.dialects.contract import DialectContract, dialect, samples
from tests.dialects.samples import SAMPLES

__all__ = ["dialect", "samples"]  # fixtures of the contract


class TestDialects(DialectContract):
    """Every row keeps the contract."""


def test_every_row_has_samples() -> None:
    assert set(SAMPLES) == {row.name for row in DIALECTS}


def test_names_and_paths_are_unique() -> None:
    names = [row.name for row in DIALECTS]
    paths = [path for row in DIALECTS for path in row.paths]

    assert len(set(names)) == len(names)
    assert len(set(paths)) == len(paths)


def test_a_row_is_found_by_name_and_path() -> None:
    for row in DIALECTS:
        assert dialect_by_name(row.name) is row
        for path in row.paths:
            found = dialect_for_path(path, "alt=sse")
            assert found is not None
            assert found.name == row.name


@pytest.mark.parametrize("path", ["", "/", "/v1/chat/completions", "/chat/completions/", "/models"])
def test_other_paths_have_no_dialect(path: str) -> None:
    assert dialect_for_path(path) is None


def test_an_unknown_name_has_no_dialect() -> None:
    assert dialect_by_name("klingon") is None
