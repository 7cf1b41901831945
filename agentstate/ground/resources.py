"""Files that ship with the package: the dashboard in `web/`, tables in `data/`.

They are read through the import system, so they are found in a checkout, an installation and the
.pyz, unpacked or not. In a checkout `web/` lies beside the package; the build maps it into it. The
one invariant: a name never leads out of its folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from agentstate.ground.errors import NotFound, shorten

PACKAGE = "agentstate"


def read_web(name: str) -> bytes:
    """Return a file of the dashboard, named as in "views/session.js".

    Raises:
        NotFound: there is no such file.
    """
    return _read(_web(), name)


def list_web() -> tuple[str, ...]:
    """Return the names of all files of the dashboard, sorted."""
    return tuple(sorted(_walk(_web(), "")))


def read_data(name: str) -> bytes:
    """Return a packaged table, named as in "model_prices.json".

    Raises:
        FileNotFoundError: it was not packaged. Nobody asked for it by name, so it is a bug of ours.
    """
    try:
        return _read(files(PACKAGE) / "data", name)
    except NotFound as error:
        raise FileNotFoundError(error.message) from error


def _web() -> Traversable:
    packaged = files(PACKAGE) / "web"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "web"


def _read(folder: Traversable, name: str) -> bytes:
    parts = name.split("/")
    if not any(_is_outside(part) for part in parts):
        found = folder
        for part in parts:
            found = found / part
        if found.is_file():
            return found.read_bytes()
    raise NotFound(f"There is no packaged file {shorten(name)!r}.")


def _is_outside(part: str) -> bool:
    # A backslash and a colon separate paths on Windows; a NUL ends them for the operating system.
    return part in ("", ".", "..") or any(sign in part for sign in "\\:\0")


def _walk(folder: Traversable, prefix: str) -> Iterator[str]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name
