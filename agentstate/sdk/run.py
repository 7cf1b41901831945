"""One life of an agent in one session: what each of its calls says about itself.

A run is begun with each client, or with each session object for all clients that it makes. Calls
are numbered and named here and nowhere else, so that each is numbered once, whichever thread, task
or client makes it. It sends nothing itself.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from typing import Literal

from agentstate.sdk.address import DEFAULT_BASE_URL, parse_address
from agentstate.sdk.token import HEADER as TOKEN
from agentstate.sdk.token import find_token

ReplayMode = Literal["pinned", "exact", "refresh", "off"]
OnReject = Literal["stop", "continue"]

SESSION, RUN, CALL = "x-agent-session-id", "x-agent-run-id", "x-agent-call-id"
STEP_NUMBER = "x-agent-step-number"
# What is said of the session itself, so not of another one that a single call names.
NAME, PARENT, TAGS = "x-agent-session-name", "x-agent-parent-session", "x-agent-tags"
ABOUT = (STEP_NUMBER, NAME, PARENT, TAGS)

# What makes a step, as paths below /v1. All else passes through the proxy, and takes no number.
STEP_PATHS = frozenset(("/chat/completions", "/responses", "/completions", "/embeddings",
                        "/messages"))  # fmt: skip


class Run:
    """One life of an agent in a session."""

    def __init__(
        self,
        session_id: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        step_number: int = 0,
        run_id: str | None = None,
        require_approval: bool = False,
        fallback_model: str | Iterable[str] | None = None,
        replay: ReplayMode | None = None,
        on_reject: OnReject | None = None,
        name: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> None:
        """Begin it; `run_id` None means a new one, `token` None what the environment says.

        Raises:
            ValueError: an id, a number or a text that no header can carry.
        """
        self.session_id = _checked("session_id", session_id)
        self.run_id = _checked("run_id", str(uuid.uuid4()) if run_id is None else run_id)
        if isinstance(step_number, bool) or not isinstance(step_number, int) or step_number < 0:
            raise ValueError(f"step_number must be an integer from 0; found {step_number!r}.")
        self._next_number = step_number
        self._lock = threading.Lock()
        self.address = parse_address(base_url)
        self.token = find_token(token)  # None = none
        stated = {
            RUN: self.run_id,
            "x-agent-require-approval": "true" if require_approval else None,
            "x-agent-fallback-model": _listed(fallback_model),
            "x-agent-replay": replay,
            "x-agent-on-reject": on_reject,
            NAME: name,
            PARENT: parent,
            TAGS: ",".join(f"{key}={value}" for key, value in (tags or {}).items()) or None,
            TOKEN: self.token,
        }
        if session_id.isascii():
            stated = {SESSION: session_id, **stated}
        else:
            self.address = self.address.with_session(session_id)
        self._constant = {key: _checked(key, text) for key, text in stated.items() if text}
        for key, text in self._constant.items():
            # The clients write headers as ASCII, and would say so in the midst of a call.
            if not text.isascii():
                raise ValueError(
                    f"{key} can hold ASCII only; found {text!r}. Say it with "
                    "PATCH /api/sessions/{id}, which takes any text."
                )

    def constant_headers(self) -> dict[str, str]:
        """Return what every call of this run says."""
        return dict(self._constant)

    def call_headers(self) -> dict[str, str]:
        """Return what only one call says: its id and its number. Each time a new call's."""
        with self._lock:
            number = self._next_number
            self._next_number += 1
        return {CALL: str(uuid.uuid4()), STEP_NUMBER: str(number)}

    def stamp(self, given: Iterable[str], *, is_step: bool) -> dict[str, str]:
        """Return the headers to add to a request that has those with the names `given`.

        What is given stands. A request that names another session says nothing of this one, and
        takes no number of it.
        """
        names = {name.lower() for name in given}
        headers = dict(self._constant)
        if SESSION in names:
            headers = {key: text for key, text in headers.items() if key not in ABOUT}
            if is_step:
                headers[CALL] = str(uuid.uuid4())
        elif is_step and STEP_NUMBER in names:
            headers[CALL] = str(uuid.uuid4())
        elif is_step:
            headers |= self.call_headers()
        return {key: text for key, text in headers.items() if key not in names}


def is_step(method: str, path: str) -> bool:
    """Say whether a request makes a step; `path` with or without what stands before `/v1`."""
    below = path.partition("?")[0].rpartition("/v1/")[2].strip("/")
    return method.upper() == "POST" and f"/{below}" in STEP_PATHS


def _listed(models: str | Iterable[str] | None) -> str | None:
    return models if models is None or isinstance(models, str) else ",".join(models)


def _checked(name: str, text: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{name} must be a text that is not empty; found {text!r}.")
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise ValueError(f"{name} holds control characters: {text!r}.")
    return text
