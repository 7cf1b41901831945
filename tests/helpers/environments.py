"""Python environments beside the tests' own, for packages whose pins clash with it, or are large.

Each is made once into the build folder from its list of pinned packages: in CI, or where it is
there already. Elsewhere the tests that need it skip.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.proxy import ROOT

INSTALL_TIMEOUT_S = 900


def need_python(name: str) -> Path:
    """Return the interpreter of the environment with tests/requirements-NAME.txt; else skip."""
    folder, pins = ROOT / ".build" / name, ROOT / "tests" / f"requirements-{name}.txt"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp = folder / "stamp"
    key = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == key and python.exists():
        return python
    if not os.environ.get("CI"):
        pytest.skip(f"needs tests/{pins.name}; with CI=1 it is installed into .build/{name}")
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    flags = ["--quiet", "--disable-pip-version-check", "--no-input", "--require-hashes"]
    flags.append("--no-compile")  # of some ten thousand modules the tests import a few hundred
    _run([str(python), "-m", "pip", "install", *flags, "-r", str(pins)])
    stamp.write_text(key)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"{command[:4]} failed: {done.stderr[-500:]}")
