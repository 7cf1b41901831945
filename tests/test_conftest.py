"""The rules of conftest.py, tried on a small suite of its own in another process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_passes(): pass

@pytest.mark.long
def test_long(): pass

@pytest.mark.browser
def test_browser(): pytest.skip("no chromium")

@pytest.mark.clients
@pytest.mark.long
def test_long_client(): pass

@pytest.mark.browser
@pytest.mark.xfail(strict=True)
def test_expected(): assert False

def test_other(): pytest.skip("not on this platform")
"""
WHOLE_FILE = "import pytest\npytest.importorskip('no_such_package_anywhere')\n"


def outcome(tmp_path: Path, suite: str, *flags: str, ci: bool) -> tuple[int, dict[str, int], str]:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_suite.py").write_text(suite)
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", *flags],
        cwd=tmp_path,
        env={**environ, **({"CI": "true"} if ci else {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    counts = re.findall(
        r"(\d+) (passed|failed|skipped|xfailed|error)", done.stdout.splitlines()[-1]
    )
    return done.returncode, {name: int(count) for count, name in counts}, done.stdout


@pytest.mark.slow
def test_a_developer_skips_what_is_missing(tmp_path: Path) -> None:
    code, counts, _ = outcome(tmp_path, SUITE, ci=False)

    assert (code, counts) == (0, {"passed": 1, "skipped": 4, "xfailed": 1})


@pytest.mark.slow
def test_ci_fails_what_is_missing(tmp_path: Path) -> None:
    code, counts, printed = outcome(tmp_path, SUITE, ci=True)

    assert (code, counts) == (1, {"passed": 1, "skipped": 3, "xfailed": 1, "failed": 1})
    assert "skipped in CI, where what it needs must be there: Skipped: no chromium" in printed


@pytest.mark.slow
def test_long_tests_run_when_asked_for(tmp_path: Path) -> None:
    code, counts, _ = outcome(tmp_path, SUITE, "--long", ci=False)

    assert (code, counts) == (0, {"passed": 3, "skipped": 2, "xfailed": 1})


@pytest.mark.slow
def test_no_whole_file_skips_in_ci(tmp_path: Path) -> None:
    code, counts, printed = outcome(tmp_path, WHOLE_FILE, ci=True)

    assert (code, counts) == (2, {"error": 1})
    assert "a whole file skipped in CI: Skipped: could not import" in printed
