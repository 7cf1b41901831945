"""Child processes start as the same program, get ready in time, and never outlive their parent."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest

from agentstate.house import launch
from agentstate.house.launch import (
    ChildFailed,
    child,
    module_command,
    stoppable,
    wait_for_line,
)

READY = re.compile(r"ready on (\d+)")


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_module_runs_as_the_same_program_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "agentstate.py").write_text("raise SystemExit('the wrong agentstate')")
    with child(module_command("agentstate.house.bench_load", "load"), tmp_path) as process:
        assert process.wait(20) == 0


def test_arguments_reach_the_module_as_its_own(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text("import sys; print(sys.argv[1:])")
    command = [*module_command("x", "a b", "--c")]
    command[4:6] = [str(tmp_path), "told"]
    with child(command, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.read() == "['a b', '--c']\n"


def test_the_line_that_says_ready_is_found_among_others(tmp_path: Path) -> None:
    code = "print('warming up'); print('ready on 42'); input()"
    with child(python(code), tmp_path, takes_input=True) as process:
        assert wait_for_line(process, READY)[1] == "42"


def test_a_child_that_ends_before_it_is_ready_is_told_with_its_last_words(tmp_path: Path) -> None:
    with (
        child(python("print('no such port'); raise SystemExit(3)"), tmp_path) as process,
        pytest.raises(ChildFailed, match=r"ended with 3(.|\n)*no such port"),
    ):
        wait_for_line(process, READY)


def test_a_child_that_never_gets_ready_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "START_TIMEOUT_S", 0.2)
    with (
        child(python("import threading; threading.Event().wait()"), tmp_path) as process,
        pytest.raises(ChildFailed, match="not ready within"),
    ):
        wait_for_line(process, READY)
    assert process.returncode == -signal.SIGKILL


def test_leaving_the_block_by_an_error_ends_the_child(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        child(python("import threading; threading.Event().wait()"), tmp_path) as process,
    ):
        raise KeyboardInterrupt
    assert is_gone(process.pid)
    assert process.stdout is not None
    assert process.stdout.closed


def test_a_child_that_ignores_being_asked_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "STOP_TIMEOUT_S", 0.2)
    code = (
        "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('ready on 1'); threading.Event().wait()"
    )
    with child(python(code), tmp_path) as process:
        wait_for_line(process, READY)
    assert process.returncode == -signal.SIGKILL


def test_a_child_has_a_session_of_its_own_so_ctrl_c_is_not_its(tmp_path: Path) -> None:
    code = "import os; print('ready on', os.getsid(0))"
    with child(python(code), tmp_path) as process:
        assert int(wait_for_line(process, READY)[1]) == process.pid


def test_sigterm_unwinds_what_is_inside_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    unwound = []

    def be_stopped() -> None:
        with stoppable():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                unwound.append(True)

    with pytest.raises(SystemExit) as caught:
        be_stopped()
    assert caught.value.code == 128 + signal.SIGTERM
    assert unwound == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_in_another_thread_signals_are_left_alone() -> None:
    seen = []

    def look() -> None:
        with stoppable():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
