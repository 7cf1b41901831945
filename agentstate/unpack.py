"""The first code of the .pyz: finds a private folder to unpack into, then lets shiv go on.

The build copies this file into the archive as its `__main__`, so it runs before the package can be
imported and knows nothing of it. The packages are one entry of the archive, a zip of their own (see
`build.py`), which shiv is given in place of the archive.

shiv unpacks to ~/.shiv and fails where there is no such place: a container under an arbitrary uid
has no home and a read-only root. Here the order is SHIV_ROOT, the home, the folder of the database,
the temporary folder; and where nothing can be written the program runs from a file in memory, which
costs a second of compiling at every start.

What is unpacked is executed later, so a folder counts only if nobody else can write to it.
"""

from __future__ import annotations

import os
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PACKAGES = "site-packages.zip"  # the entry of the archive that holds the packages
FOLDER = ".shiv"  # shiv's own name for it, in the home
PRIVATE = 0o700


def main() -> None:
    """Run the program this archive holds."""
    root = os.environ.get("SHIV_ROOT") or find_root(os.environ, sys.argv[1:])
    if not root:
        _run_packed(sys.argv[0])
    os.environ["SHIV_ROOT"] = root
    # More than one would start processes, which run this file again on some platforms, and which
    # need shared memory that small containers lack.
    os.environ.setdefault("SHIV_COMPILE_WORKERS", "1")
    import _bootstrap  # type: ignore[import-not-found]

    extract = _bootstrap.extract_site_packages

    def extract_packages(archive: zipfile.ZipFile, *rest: Any) -> None:
        with archive.open(PACKAGES) as file, zipfile.ZipFile(file) as packages:
            extract(packages, *rest)

    _bootstrap.extract_site_packages = extract_packages
    _bootstrap.bootstrap()


def find_root(environ: Mapping[str, str], arguments: Sequence[str]) -> str | None:
    """Return the first folder that is ours alone and can be written; None = there is none."""
    return next((str(each) for each in _candidates(environ, arguments) if _is_ours(each)), None)


def _candidates(environ: Mapping[str, str], arguments: Sequence[str]) -> Iterator[Path]:
    home = os.path.expanduser("~")
    if os.path.isabs(home):
        yield Path(home, FOLDER)
    if database := _database(environ, arguments):
        yield Path(database).absolute().parent / FOLDER
    # Where one is named it is meant: then the shared ones are not looked at.
    named = [environ[name] for name in ("TMPDIR", "TEMP", "TMP") if environ.get(name)]
    for folder in named or ("/tmp", "/var/tmp"):
        yield Path(folder, f"{FOLDER}-{_user()}")


def _database(environ: Mapping[str, str], arguments: Sequence[str]) -> str | None:
    """Return where the database is said to be. Not the default: no stray folders where one is."""
    for position, argument in enumerate(arguments):
        if argument == "--db":
            return next(iter(arguments[position + 1 : position + 2]), None)
        if argument.startswith("--db="):
            return argument.removeprefix("--db=")
    return environ.get("AGENTSTATE_STORE_PATH") or environ.get("AGENTSTATE_DB")


def _is_ours(folder: Path) -> bool:
    """Make the folder if it is missing; say whether nobody but us and root can change it."""
    try:
        folder.mkdir(PRIVATE, exist_ok=True)
        found = os.lstat(folder)
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode) or not os.access(folder, os.W_OK | os.X_OK):
        return False
    is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return os.name == "nt" or (found.st_uid in (0, _user()) and not is_open)


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _run_packed(archive: str) -> NoReturn:
    if not hasattr(os, "memfd_create"):  # Linux alone has files without a folder
        sys.exit("agentstate: needs a folder to unpack into: name one that is yours in SHIV_ROOT.")
    file = os.memfd_create(PACKAGES)  # open for as long as we live: what is imported is read late
    with zipfile.ZipFile(archive) as opened, open(file, "wb", closefd=False) as memory:
        memory.write(opened.read(PACKAGES))
    sys.path.insert(0, f"/proc/self/fd/{file}/site-packages")
    from agentstate.__main__ import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
