"""Keys and lines, from a real terminal (a pseudo-terminal) and from a pipe."""

from __future__ import annotations

import io
import os
import pty
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO, cast

import pytest

from agentstate.cli_keys import LineKeys, TerminalKeys, editor_of, read_keys

WAIT_S = 5.0


@dataclass
class Terminal:
    """A pseudo-terminal: `typed` is what a person's keys write to."""

    typed: int
    stream: TextIO

    def type(self, text: bytes) -> None:
        """Press keys."""
        os.write(self.typed, text)

    @property
    def mode(self) -> list[object]:
        """How it is set."""
        return list(termios.tcgetattr(self.stream.fileno()))


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    master, slave = pty.openpty()
    with open(slave, encoding="utf-8", errors="replace") as stream:
        yield Terminal(master, stream)
    os.close(master)


def keys_of(terminal: Terminal) -> TerminalKeys:
    return TerminalKeys(terminal.stream, blink_s=0.0)


def test_a_key_counts_without_a_line_end(terminal: Terminal) -> None:
    with keys_of(terminal) as keys:
        terminal.type(b"A")
        assert keys.press(WAIT_S) == "a"
        assert keys.press(0.0) is None


@pytest.mark.parametrize("sequence", [b"\x1b[A", b"\x1bOA", "\u0430".encode(), b"aaa", b"a\r"])
def test_what_is_not_one_key_is_no_answer(sequence: bytes, terminal: Terminal) -> None:
    with keys_of(terminal) as keys:
        terminal.type(sequence)
        assert keys.press(WAIT_S) is None
        assert keys.press(0.0) is None


def test_what_was_typed_ahead_does_not_answer(terminal: Terminal) -> None:
    with keys_of(terminal) as keys:
        terminal.type(b"a")
        keys.flush()
        assert keys.press(0.0) is None
        terminal.type(b"r")
        assert keys.press(WAIT_S) == "r"


def test_what_comes_in_the_blink_of_a_question_does_not_answer(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Blink:
        """A pause in which a second press of the last key comes."""

        def wait(self, timeout_s: float) -> None:
            terminal.type(b"a")

    with keys_of(terminal) as keys:
        monkeypatch.setattr(threading, "Event", Blink)
        keys.flush()
        assert keys.press(0.0) is None


def test_a_line_is_read_as_a_person_edits_it(terminal: Terminal) -> None:
    class Person:
        """Types once the terminal waits for a line."""

        fileno = terminal.stream.fileno

        def readline(self, size: int) -> str:
            terminal.type(b"nox\x7f\n")
            return terminal.stream.readline(size)

    with TerminalKeys(cast(TextIO, Person()), blink_s=0.0) as keys:
        assert keys.line() == "no"
        terminal.type(b"a")
        assert keys.press(WAIT_S) == "a"


def test_ctrl_d_is_the_end(terminal: Terminal) -> None:
    with keys_of(terminal) as keys:
        terminal.type(b"\x04")
        with pytest.raises(EOFError):
            keys.press(WAIT_S)


def test_a_terminal_that_is_gone_is_the_end() -> None:
    master, slave = pty.openpty()
    with open(slave, encoding="utf-8") as stream:
        keys = TerminalKeys(stream)
        os.close(master)
        with pytest.raises(EOFError):
            keys.press(WAIT_S)


def test_the_terminal_is_as_it_was_whatever_happens(terminal: Terminal) -> None:
    before = terminal.mode

    def interrupt(keys: TerminalKeys) -> None:
        with keys:
            assert terminal.mode != before
            with keys.lent():
                assert terminal.mode == before
            assert terminal.mode != before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt(keys_of(terminal))
    assert terminal.mode == before


def test_a_terminal_gives_keys_and_a_pipe_lines(terminal: Terminal) -> None:
    with read_keys(terminal.stream) as keys:
        assert isinstance(keys, TerminalKeys)
    with read_keys(io.TextIOWrapper(pipe_of(b""))) as keys:
        assert isinstance(keys, LineKeys)


def pipe_of(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, io.BytesIO(content)))


def test_lines_of_a_pipe_are_keys() -> None:
    keys = LineKeys(pipe_of(b" A \n\nabort\r\na line \xff\n"))

    assert keys.rest(0.0) is None
    assert [keys.press(0.0) for _ in range(3)] == ["a", None, "abort"]
    assert keys.line() == "a line \ufffd"
    assert keys.line() is None
    with pytest.raises(EOFError):
        keys.press(0.0)
    with pytest.raises(EOFError):
        keys.rest(0.0)


def test_a_pipe_that_may_still_be_written_has_not_ended() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as stream:
        keys = LineKeys(stream)
        assert keys.rest(0.0) is None
        os.write(writer, b"a\nr\n")
        assert keys.press(0.0) == "a"
        os.close(writer)
        assert keys.rest(0.0) is None  # a line is left
        assert keys.press(0.0) == "r"
        with pytest.raises(EOFError):
            keys.rest(0.0)


@pytest.mark.parametrize(
    ("environ", "editor"),
    [
        ({}, None),
        ({"EDITOR": " "}, None),
        ({"EDITOR": "nano"}, ["nano"]),
        ({"EDITOR": "it's"}, ["it's"]),
        ({"EDITOR": "nano", "VISUAL": "code --wait 'a b'"}, ["code", "--wait", "a b"]),
    ],
)
def test_the_editor_is_the_persons(environ: dict[str, str], editor: list[str] | None) -> None:
    assert editor_of(environ) == editor
