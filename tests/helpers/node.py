"""Installs the Node packages that tests need, once, into a build folder.

Without Node the tests that need it are skipped. In CI a skipped test of the marker `clients` is a
failed one, see `tests/conftest.py`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.proxy import ROOT

FOLDER = ROOT / ".build" / "node"
# openai 6.49.0 is the last line that runs on Node 20; from 7 on it wants Node 22.
PACKAGES = {
    "openai": "6.49.0",
    "axe-core": "4.14.1",
    "ai": "6.0.326",
    "@ai-sdk/openai": "3.0.141",
    "zod": "4.6.7",
}

INSTALL_TIMEOUT_S = 300


def need_node() -> str:
    """Return the path of `node`, its packages installed; else skip the test."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs node and npm on the PATH")
    if not all(_is_installed(name, version) for name, version in PACKAGES.items()):
        _install(npm)
    return node


def module_path(name: str) -> Path:
    """Return the folder of an installed package."""
    return FOLDER / "node_modules" / name


def _is_installed(name: str, version: str) -> bool:
    manifest = module_path(name) / "package.json"
    return manifest.exists() and json.loads(manifest.read_bytes())["version"] == version


def _install(npm: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--no-package-lock"]
    done = subprocess.run(
        [npm, "install", *options, *wanted],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"npm could not install {wanted}: {done.stderr[-500:]}")
