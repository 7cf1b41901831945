"""Loads files with the real `datasets` package, which TRL and Axolotl read theirs with.

It is 400 MB with all it needs, so it has an environment of its own. It asks no network.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers.environments import need_python

LOAD_TIMEOUT_S = 120

_LOAD = """
import json, sys
from datasets import load_dataset
found = load_dataset("json", data_files=json.loads(sys.argv[1]))
rows = {part: [row for row in rows] for part, rows in found.items()}
print(json.dumps(rows))
"""


def load(files: dict[str, Path], cache: Path) -> dict[str, list[dict[str, Any]]]:
    """Load the file of each part; return its rows. Skips the test without the package."""
    python = need_python("datasets")
    named = {part: str(path) for part, path in files.items()}
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache), "NO_COLOR": "1"}
    done = subprocess.run(
        [str(python), "-c", _LOAD, json.dumps(named)],
        capture_output=True,
        text=True,
        env=env,
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return rows
