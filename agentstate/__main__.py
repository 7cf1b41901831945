"""Where the program begins, and the last place that catches: every way out is an exit code.

0 done · 1 failed · 2 used or configured wrongly · 130 stopped by Ctrl-C · 141 nobody reads on.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence

from agentstate.cli import run
from agentstate.ground.errors import AgentStateError, SettingError

FAILED, WRONG, INTERRUPTED, UNREAD = 1, 2, 130, 141  # the last two as a shell counts signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verb that `argv` names (default: the command line's) and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of sessions can be any text
    try:
        try:
            return run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # here a closed pipe can be answered, at exit it cannot
    except AgentStateError as error:
        _say(" ".join(part for part in (error.message, error.hint) if part))
        return WRONG if isinstance(error, SettingError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered goes nowhere, or the interpreter would complain as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _say(f"what was to be printed could not be written: {error.strerror}.")
        return FAILED
    except Exception:
        traceback.print_exc()
        _say("this is a bug in AgentState: please report it with the lines above.")
        return FAILED


def _say(message: str) -> None:
    print(f"agentstate: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
