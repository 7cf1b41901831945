"""`agentstate approvals watch`: asks a person about each approval as it comes.

It looks at the server every second. What it asks about is bound to an id whose call can never
change, so what is approved is what was shown. A server that goes away is waited for; a decision
whose answer was lost is asked again if the server did not get it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from agentstate.cli_approvals import (
    PENDING,
    approval_lines,
    decision_line,
    hung,
    is_over,
    post_action,
    readable_json,
    terminal_width,
)
from agentstate.cli_keys import EditFailed, Keys, edit
from agentstate.cli_server import Record, Refused, ServerSilent
from agentstate.ground.canonical import JSON, canonical, object_or_text, parse
from agentstate.ground.errors import BadRequest
from agentstate.ground.visible import visible

POLL_S = 1.0
SHOWN_CHARS_MAX = 20_000  # of arguments or a request: ten screens, which nobody scrolls through
QUESTION = "[a]pprove  [r]eject and stop  reject and [c]ontinue  [e]dit  [s]kip  [q]uit: "
WORDS = {
    "a": "approve",
    "r": "reject and stop",
    "c": "reject and continue",
    "e": "edit",
    "s": "skip",
    "q": "quit",
}

Row = Mapping[str, Any]


class Watch:
    """One person working down the list."""

    def __init__(
        self,
        record: Record,
        keys: Keys,
        *,
        by: str | None,
        editor: list[str] | None,
        is_over: Callable[[], bool] = lambda: False,
        poll_s: float = POLL_S,
    ) -> None:
        """`by`: who decides; None = not said. `editor`: its command; None = edit as a line.

        `is_over`: looked at now and then; True ends the watch.
        """
        self._record = record
        self._keys = keys
        self._by = by
        self._editor = editor
        self._is_over = is_over
        self._poll_s = poll_s
        self._is_silent = False
        self._skipped: dict[str, int] = {}  # approval → when it was asked; asked again, it is new

    def run(self) -> int:
        """Ask until the person quits or there is no more input; return the exit code.

        Raises:
            ServerSilent: there is no server to begin with. Later it is waited for.
            Refused: this server will never show its approvals.
        """
        rows: list[Row] | None = self._record.get(PENDING).value
        self._greet(rows or [])
        try:
            while not self._is_over():
                waiting = self._unanswered(rows or [])
                if waiting:
                    if not self._ask(waiting[0], len(waiting)):
                        return 0
                elif self._keys.rest(self._poll_s) == "q":
                    return 0
                rows = self._poll()
            return 0
        except EOFError:
            return 0
        except KeyboardInterrupt:
            print()  # what the shell says next begins a line
            raise

    def _greet(self, rows: list[Row]) -> None:
        print(f"Watching {self._record.place}. q, or Ctrl-C, ends it; nothing is decided by that.")
        expired = sum(row["status"] == "EXPIRED" for row in rows)
        if expired:
            print(f"{expired} expired with no decision: agentstate approvals list shows them.")

    def _poll(self) -> list[Row] | None:
        """Return what waits; None = the server does not say."""
        try:
            rows: list[Row] = self._record.get(PENDING).value
        except (ServerSilent, Refused) as error:
            if isinstance(error, Refused) and error.status < 500:
                raise
            if not self._is_silent:
                print(f"\n{error.message}\nTrying again until it answers.", flush=True)
            self._is_silent = True
            return None
        if self._is_silent:
            print("It answers again.", flush=True)
            self._is_silent = False
        return rows

    def _unanswered(self, rows: list[Row]) -> list[Row]:
        asked = {row["approval_id"]: row["asked_ms"] for row in rows}
        self._skipped = {
            name: at_ms for name, at_ms in self._skipped.items() if asked.get(name) == at_ms
        }
        return [
            row
            for row in rows
            if row["status"] == "PENDING" and row["approval_id"] not in self._skipped
        ]

    def _ask(self, row: Row, count: int) -> bool:
        """Ask about one approval until it is settled; return False to quit."""
        row = self._whole(row)
        print()
        print("\n".join(approval_lines(row, width=terminal_width(), chars_max=SHOWN_CHARS_MAX)))
        if count > 1:
            print(f"    {count - 1} more after this one")
        draft = readable_json(row["arguments"])
        print(QUESTION, end="", flush=True)
        self._keys.flush()
        while True:
            key = self._press()
            if key is None:
                was_silent = self._is_silent
                if self._is_settled(row) or self._is_over():
                    return True
                if self._is_silent != was_silent:  # something was printed below the question
                    print(QUESTION, end="", flush=True)
                continue
            print(WORDS.get(key, "?"))
            action: dict[str, JSON] | None = None
            match key:
                case "q":
                    return False
                case "s":
                    self._skipped[row["approval_id"]] = row["asked_ms"]
                    return True
                case "a":
                    action = {"action": "APPROVED"}
                case "r":
                    action = {"action": "REJECTED", "then": "stop"}
                case "c":
                    action = self._rejection()
                case "e":
                    edited = self._edited(row, draft)
                    if edited is not None:
                        draft = edited
                        # The layout made for a person goes no further.
                        action = {"action": "APPROVED", "arguments": object_or_text(edited)}
            if action is not None and self._decide(row, action):
                return True
            print(QUESTION, end="", flush=True)

    def _whole(self, row: Row) -> Row:
        """Return an approval with what lists leave out, the request; as it is if it is gone."""
        try:
            found: Row = self._record.get(_path(row)).value
        except (ServerSilent, Refused):
            return row
        return found

    def _press(self) -> str | None:
        try:
            return self._keys.press(self._poll_s)
        except EOFError:
            print()  # below the question
            raise

    def _line(self, question: str) -> str | None:
        print(question, end="", flush=True)
        line = self._keys.line()
        if line is None or not self._keys.shows_lines:
            print()
        return line

    def _decide(self, row: Row, action: Mapping[str, JSON]) -> bool:
        """Send a decision; say whether there is nothing left to decide here."""
        try:
            found = post_action(self._record, row["approval_id"], {**action, "by": self._by})
        except Refused as refusal:
            _say(refusal.message)
            return is_over(refusal)
        except ServerSilent as error:
            print(f"{error.message}\nIf your decision did not get there, you are asked again.")
            return True
        _say(decision_line(json.loads(found)) + ".")
        return True

    def _is_settled(self, row: Row) -> bool:
        """Say, also to the person, whether somebody or time was faster."""
        rows = self._poll()
        if rows is None:
            return False
        name = row["approval_id"]
        now = next((each for each in rows if each["approval_id"] == name), None)
        if now is not None and now["status"] == "PENDING":
            return False
        if now is not None:
            print("\nIts time is over. The call asks again when its agent comes back.")
            return True
        try:
            found = self._record.get(_path(row)).value
            _say(f"\nMeanwhile: {decision_line(found)}.")
        except (Refused, ServerSilent) as error:
            _say(f"\n{error.message}")
        return True

    def _rejection(self) -> dict[str, JSON] | None:
        reason = self._line("Why? The model is told. (empty: no reason) ")
        if reason is None:
            return None
        return {"action": "REJECTED", "then": "continue", "reason": reason.strip() or None}

    def _edited(self, row: Row, draft: str) -> str | None:
        """Have the arguments edited; None = they stay, and nothing is decided."""
        if not row["can_edit"]:
            print("Only a call that the model made as such can be edited. Approve or reject it.")
            return None
        if self._editor is None:
            edited = self._line("New arguments, in one line (empty: leave them): ")
        else:
            try:
                with self._keys.lent():
                    edited = edit(_plain(draft), self._editor)
            except EditFailed as error:
                _say(error.message)
                return None
        if edited is None or not edited.strip() or _is_same(edited, row["arguments"]):
            print("The arguments are as they were; nothing was decided.")
            return None
        return edited


def _path(row: Row) -> str:
    return f"/api/approvals/{quote(row['approval_id'], safe='')}"


def _say(text: str) -> None:
    """Print what may hold a stranger's words: no line of it is left for the terminal to wrap."""
    for line in text.split("\n"):
        print("\n".join(hung(line, terminal_width())))


def _plain(text: str) -> str:
    """Spell what an editor would not show: JSON has escapes for that; other text stays."""
    try:
        parse(text.encode("utf-8", "surrogatepass"))
    except BadRequest:
        return text
    return "".join(
        each if each.isascii() or visible(each) == each else json.dumps(each)[1:-1] for each in text
    )


def _is_same(edited: str, arguments: str) -> bool:
    try:
        texts = [each.encode("utf-8", "surrogatepass") for each in (edited, arguments)]
        first, second = (canonical(parse(text)) for text in texts)
    except BadRequest:
        return edited == arguments
    return first == second
