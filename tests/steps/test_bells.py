"""Bells wake who listens, and keep nothing of who has gone."""

from __future__ import annotations

import pytest

from agentstate.steps.bells import Bells


def test_any_of_its_names_rings_a_bell() -> None:
    bells = Bells()
    with bells.listening("a", ("session", "s")) as bell, bells.listening("b") as other:
        bells.ring("c")
        assert not bell.is_set()
        bells.ring("a")
        assert bell.is_set()
        bell.clear()
        bells.ring(("session", "s"))
        assert bell.is_set()
        assert not other.is_set()


def test_all_are_rung_at_the_end() -> None:
    bells = Bells()
    with bells.listening("a") as bell, bells.listening("a") as other:
        bells.ring_all()
        assert bell.is_set()
        assert other.is_set()


def test_nothing_is_kept_of_who_has_gone() -> None:
    bells = Bells()
    with pytest.raises(KeyError), bells.listening("a", "b"), bells.listening("a"):
        raise KeyError("it ends in whatever way")
    assert bells._waiting == {}
    bells.ring("a")
