"""The full demo: played once as a person would, and what it says when something is not so."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from agentstate.__main__ import main
from agentstate.house import demo_full, demo_scenes_calls, demo_stage
from agentstate.house.demo import DemoFailed
from agentstate.house.demo_full import SCENES, full
from agentstate.house.demo_scene import Scene
from agentstate.house.demo_stage import Stage

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "agentstate", "demo", "full"]
LIFE_S = 120.0  # far more than it takes on a busy machine


def environ(folder: Path) -> dict[str, str]:
    """Return an environment that would lead a careless demo to a real model."""
    return {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "TMPDIR": str(folder),
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_API_KEY": "sk-a-key-that-must-not-be-used",
        "FALLBACK_MODEL": "gpt-4o",
        "AGENTSTATE_REPLAY_MODE": "off",
    }


@pytest.mark.slow
def test_every_feature_is_shown_and_holds(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND, cwd=tmp_path, env=environ(tmp_path), capture_output=True, text=True, check=False,
        timeout=LIFE_S,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    assert "FAILED" not in done.stdout
    table = done.stdout[done.stdout.index("    feature ") :].splitlines()
    assert [line[4:].split("  ")[0] for line in table[1 : len(SCENES) + 1]] == [
        scene.name for scene in SCENES
    ]
    assert all(line.startswith("  ✓ ") for line in table[1 : len(SCENES) + 1])
    held = rf"{len(SCENES)} of {len(SCENES)} held, in \d+\.\d s\. No real model was asked\."
    assert re.fullmatch(held, table[-1])
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


class FakeStage:
    """Stands where a stage would, with nothing on it."""

    url = "http://127.0.0.1:1"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def staged() -> Iterator[FakeStage]:
        yield FakeStage()

    monkeypatch.setattr(demo_full, "staged", staged)


def raising(error: BaseException) -> Callable[[Stage], str]:
    def play(_: Stage) -> str:
        raise error

    return play


GOOD = Scene("a good one", "It works.", lambda _: "2 of 2")


@pytest.mark.usefixtures("bare")
def test_scenes_that_hold_are_told_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert full([GOOD, GOOD]) == 0

    printed = capsys.readouterr().out
    assert " 1. a good one\n    It works.\n  ✓ 2 of 2  (" in printed
    assert "2 of 2 held, in " in printed


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (DemoFailed("Calls: expected 4, found 5."), "✗ FAILED: Calls: expected 4, found 5."),
        (KeyError("steps"), "✗ FAILED: KeyError('steps')"),
        (ConnectionRefusedError(), "✗ FAILED: ConnectionRefusedError()"),
        (DemoFailed("a\x1b[2Jb"), "✗ FAILED: a\\x1b[2Jb"),
    ],
)
def test_a_scene_that_fails_is_told_and_the_next_one_is_played(
    error: Exception, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert full([Scene("a bad one", "It does not.", raising(error)), GOOD]) == 1

    printed = capsys.readouterr().out
    assert says in printed
    assert "  ✓ 2 of 2" in printed
    assert "1 of 2 held, in " in printed


@pytest.mark.usefixtures("bare")
def test_ctrl_c_in_a_scene_ends_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert full([Scene("long", "…", raising(KeyboardInterrupt())), GOOD]) == 130

    printed = capsys.readouterr().out
    assert "Stopped; everything the demo started has ended." in printed
    assert "2 of 2" not in printed


def test_what_cannot_be_set_up_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def staged() -> None:
        raise DemoFailed("no port")

    monkeypatch.setattr(demo_full, "staged", staged)

    assert full([GOOD]) == 1
    assert "The demo failed. no port" in capsys.readouterr().out


def test_a_terminal_that_has_no_tick_gets_signs(
    monkeypatch: pytest.MonkeyPatch, bare: None
) -> None:
    written: list[str] = []

    class Terminal:
        encoding = "latin-1"

        def write(self, text: str) -> int:
            text.encode(self.encoding)
            written.append(text)
            return len(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stdout", Terminal())

    assert full([GOOD]) == 0
    assert "  + 2 of 2" in "".join(written)


@pytest.mark.slow
def test_a_proxy_that_does_not_do_what_is_claimed_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checks are real: with the replay of changed tool results off, that scene fails."""
    worse = demo_stage.CONFIGURATION + '\n[replay]\nmode = "exact"\n'
    monkeypatch.setattr(demo_stage, "CONFIGURATION", worse)
    [pinned] = [row for row in demo_scenes_calls.SCENES if row.name == "pinned replay"]

    assert full([pinned, GOOD]) == 1

    printed = capsys.readouterr().out
    assert "How the answers were found: expected ['exact', 'pinned', 'pinned']" in printed
    assert "1 of 2 held" in printed


@pytest.mark.slow
def test_keep_leaves_the_proxy_running_until_ctrl_c(tmp_path: Path) -> None:
    script = (
        "import sys; from agentstate.house.demo_full import full; "
        "from agentstate.house.demo_scene import Scene; "
        "sys.exit(full([Scene('one', 'It works.', lambda stage: 'yes')], keeps=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=environ(tmp_path), text=True,
        stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        watchdog = threading.Timer(LIFE_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        link = read_to(process.stdout, r"http://127\.0\.0\.1:\d+/dashboard/$")
        assert list(tmp_path.iterdir()) != [], "it is there"
        process.send_signal(signal.SIGINT)
        assert process.wait(LIFE_S) == 0, link
        watchdog.cancel()

    assert list(tmp_path.iterdir()) == []


def read_to(lines: IO[str], pattern: str) -> str:
    for line in lines:
        if re.match(pattern, line):
            return line.strip()
    raise AssertionError(f"no line like {pattern}")


def test_the_verb_passes_keep_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def fake(*, keeps: bool) -> int:
        asked.append(keeps)
        return 3

    monkeypatch.setattr(demo_full, "full", fake)

    assert main(["demo", "full"]) == 3
    assert main(["demo", "full", "--keep"]) == 3
    assert asked == [False, True]
