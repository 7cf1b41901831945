"""The runner of what coverage leads: refuses names it has not, and runs every target (`--long`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import run
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60  # for each target


def test_an_unknown_target_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        run.main(["nonsense"])

    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "nonsense" in said
    assert all(name in said for name in TARGETS)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="atheris has wheels for Linux alone")
@pytest.mark.parametrize("name", TARGETS)
def test_a_minute_led_by_coverage_finds_nothing(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "build.py"), "fuzz", name]

    done = subprocess.run(
        [*command, "--seconds", str(SECONDS), "--corpus", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=SECONDS * 10,
        check=False,
    )

    assert done.returncode == 0, done.stdout + (tmp_path / name / "log.txt").read_text()[-4000:]
