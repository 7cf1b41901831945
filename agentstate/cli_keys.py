"""What a person at the keyboard says: one key, one line, or an edited text.

On a terminal a key counts the moment it is pressed; elsewhere (a pipe, Windows) a line does. The
invariants: what was typed before a question was on the screen does not answer it, an arrow key or a
paste is no answer, and the terminal is as it was before, whatever happens.
"""

from __future__ import annotations

import io
import os
import select
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol, Self, TextIO, cast

from agentstate.ground.errors import AgentStateError, shorten

if sys.platform != "win32":
    import termios
    import tty

CTRL_D = b"\x04"
READ_BYTES = 64  # of one key press: more than the longest sequence of a function key
# Nobody has read a question before that, so a key that comes sooner was meant for the one before.
BLINK_S = 0.3
EDITED_BYTES_MAX = 16 * 1024 * 1024  # what the API takes
LINE_BYTES_MAX = 1024 * 1024


class EditFailed(AgentStateError):
    """The editor did not start, said it failed, or left what cannot be read."""

    code = "edit_failed"


class Keys(Protocol):
    """A keyboard, or what stands for one."""

    shows_lines: bool  # a person sees the line they type, and its end

    def rest(self, timeout_s: float) -> str | None:
        """Let time pass; return a key that was pressed meanwhile, None = none was."""
        ...

    def flush(self) -> None:
        """Forget what was typed so far: a question has just been shown."""
        ...

    def press(self, timeout_s: float) -> str | None:
        """Wait for the key that answers a question; None = none came, look again.

        Raises:
            EOFError: none will ever come.
        """
        ...

    def line(self) -> str | None:
        """Read a line, without its end; None = there is none."""
        ...

    def lent(self) -> AbstractContextManager[None]:
        """Give the terminal to another program for a while."""
        ...


class LineKeys:
    """Lines of a pipe, a file or a Windows console: a key is a line of its own."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self.shows_lines = stream.isatty()
        self._stream = stream

    def rest(self, timeout_s: float) -> str | None:
        """See `Keys.rest`; what is in the pipe waits for a question.

        Raises:
            EOFError: the pipe has ended, so no question will find an answer.
        """
        if self._has_ended():
            raise EOFError
        threading.Event().wait(timeout_s)
        return None

    def flush(self) -> None:
        """See `Keys.flush`; a pipe is filled by a program, which may write ahead."""

    def press(self, timeout_s: float) -> str | None:
        """See `Keys.press`; waits for a line however long that takes."""
        line = self.line()
        if line is None:
            raise EOFError
        return line.strip().lower() or None

    def line(self) -> str | None:
        """See `Keys.line`."""
        line = self._stream.readline(LINE_BYTES_MAX)
        return line.decode("utf-8", "replace").rstrip("\r\n") if line else None

    def lent(self) -> AbstractContextManager[None]:
        """See `Keys.lent`."""
        return nullcontext()

    def _has_ended(self) -> bool:
        """Say whether nothing more can come; does not wait to find out."""
        if sys.platform == "win32":
            return False  # its pipes cannot be looked into: the next question finds out
        try:
            ready, _, _ = select.select([self._stream], [], [], 0)
        except io.UnsupportedOperation:
            ready = [self._stream]  # no file: all of it is there
        return bool(ready) and not self._stream.peek(1)


if sys.platform != "win32":

    class TerminalKeys:
        """The keys of a terminal, one by one. Use with `with`: the end puts it back as it was."""

        def __init__(self, stream: TextIO, *, blink_s: float = BLINK_S) -> None:
            """`stream` is a terminal; `blink_s` as `BLINK_S`."""
            self.shows_lines = True
            self._stream = stream
            self._handle = stream.fileno()
            self._blink_s = blink_s
            self._before = termios.tcgetattr(self._handle)

        def __enter__(self) -> Self:
            # Keys come at once and are not echoed; Ctrl-C still interrupts.
            tty.setcbreak(self._handle, termios.TCSAFLUSH)
            return self

        def __exit__(self, *_: object) -> None:
            termios.tcsetattr(self._handle, termios.TCSADRAIN, self._before)

        def rest(self, timeout_s: float) -> str | None:
            """See `Keys.rest`."""
            return self.press(timeout_s)

        def flush(self) -> None:
            """See `Keys.flush`; takes `blink_s`."""
            threading.Event().wait(self._blink_s)
            termios.tcflush(self._handle, termios.TCIFLUSH)

        def press(self, timeout_s: float) -> str | None:
            """See `Keys.press`."""
            ready, _, _ = select.select([self._handle], [], [], timeout_s)
            if not ready:
                return None
            try:
                pressed = os.read(self._handle, READ_BYTES)
            except OSError as error:
                raise EOFError from error  # the terminal was closed
            if pressed in (b"", CTRL_D):
                raise EOFError
            # An arrow key is ESC [ A: its last byte is no answer, nor is a word that was pasted.
            return pressed.decode("ascii", "replace").lower() if len(pressed) == 1 else None

        def line(self) -> str | None:
            """See `Keys.line`."""
            with self.lent():
                line = self._stream.readline(LINE_BYTES_MAX)
            return line.rstrip("\r\n") if line else None

        @contextmanager
        def lent(self) -> Iterator[None]:
            """See `Keys.lent`."""
            self.__exit__()
            try:
                yield
            finally:
                self.__enter__()


@contextmanager
def read_keys(stream: TextIO) -> Iterator[Keys]:
    """Read keys from a stream: one by one from a terminal, else line by line."""
    if sys.platform != "win32" and stream.isatty():
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        with TerminalKeys(stream) as keys:
            yield keys
    else:
        yield LineKeys(cast(io.BufferedReader, stream.buffer))


def editor_of(environ: Mapping[str, str]) -> list[str] | None:
    """Return the command of the person's editor, as git finds it; None = none is set."""
    for name in ("VISUAL", "EDITOR"):
        command = environ.get(name, "").strip()
        if command and sys.platform == "win32":
            return [command]  # its paths are full of what a shell reads as escapes
        if command:
            try:
                return shlex.split(command)
            except ValueError:  # a quote that does not end: it is part of the name
                return [command]
    return None


def edit(text: str, editor: list[str]) -> str:
    """Have a text edited in a file that nobody else can read; return it without its last line end.

    Raises:
        EditFailed: the editor did not start, exited with an error, or left no text.
    """
    handle, name = tempfile.mkstemp(prefix="agentstate-", suffix=".json")
    path = Path(name)
    try:
        with open(handle, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text + "\n")
        try:
            code = subprocess.run([*editor, name], check=False).returncode
        except OSError as error:
            raise EditFailed(
                f"The editor {shorten(editor[0])!r} cannot be started: {error.strerror}."
            ) from error
        if code != 0:
            raise EditFailed(f"The editor {shorten(editor[0])!r} ended with code {code}.")
        return _read_edited(path)
    finally:
        path.unlink(missing_ok=True)


def _read_edited(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(EDITED_BYTES_MAX + 1)
        if len(raw) > EDITED_BYTES_MAX:
            raise EditFailed(f"What was edited is over {EDITED_BYTES_MAX} bytes.")
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise EditFailed(f"What was edited cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise EditFailed("What was edited is not UTF-8.") from error
