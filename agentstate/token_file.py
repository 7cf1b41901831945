"""The token that `--token auto` makes: beside the database, readable by its owner alone.

The server makes it once and keeps it, so that links, cookies and scripts outlast a restart; the
verbs of the command line find it there. It goes to this machine's own addresses only.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from urllib.parse import urlsplit

from agentstate.ground.access import TOKEN_CHARS_MIN, Role, Tokens
from agentstate.ground.addresses import is_loopback
from agentstate.ground.errors import AgentStateError, SettingError
from agentstate.ground.load import load_settings
from agentstate.ground.settings import ServerSettings, Settings, read_environment

AUTO = "auto"
TOKEN_BYTES = 32


def file_of(settings: Settings) -> Path:
    """Return where the token of a database stands."""
    return Path(settings.store.path.removeprefix("sqlite://") + ".token")


def make_token(path: Path) -> str:
    """Return the token that is kept there; make it if it is not.

    Raises:
        SettingError: it cannot be read or written, others can read it, or it is no token.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise SettingError(f"server.token: cannot write {path} ({error.strerror}).") from error
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with open(handle, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token


def _read(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise SettingError(f"server.token: cannot read {path} ({error}).") from error
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SettingError(
            f"server.token: others may read {path}, so what is in it is no secret. Remove it: a "
            "new one is made."
        )
    if len(token) < TOKEN_CHARS_MIN:
        raise SettingError(f"server.token: {path} holds no token. Remove it: a new one is made.")
    return token


def resolve_token(settings: Settings) -> str | None:
    """Return the admin's token; None = there is none. Raises `SettingError` as `make_token`."""
    token = settings.server.token
    return make_token(file_of(settings)) if token == AUTO else token


def tokens_of(server: ServerSettings, token: str | None) -> Tokens:
    """Return all tokens of a configuration; `token` is the admin's.

    Raises:
        SettingError: one is no good, or there are others and none of an admin.
    """
    others: list[tuple[Role, str]] = [
        *(("approve", each) for each in server.approve_tokens),
        *(("read", each) for each in server.read_tokens),
        *(("agent", each) for each in server.client_tokens),
    ]
    if token is None:
        if others:
            raise SettingError(
                "server: there are tokens for some and none for you, so nobody could change "
                "anything. Set server.token too."
            )
        return Tokens(())
    return Tokens([("admin", token), *others])


def find_token(url: str) -> str | None:
    """Return what the verbs bring to the server at `url`: what the environment or the configuration
    says, else, for this machine's own addresses, what stands beside the database. None = nothing.
    """
    environ = read_environment()
    if said := environ.get("AGENTSTATE_TOKEN"):
        return said if said != AUTO else _beside(url)
    return _beside(url)


def _beside(url: str) -> str | None:
    if not is_loopback(urlsplit(url).hostname or ""):
        return None
    try:
        settings = load_settings({}, read_environment(), Path.cwd(), None).settings
        token = settings.server.token
        return token if token not in (None, AUTO) else _read(file_of(settings))
    except AgentStateError:
        return None  # the server will say that one is needed
