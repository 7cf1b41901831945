"""Coverage-guided fuzzing with atheris: `build.py fuzz [TARGET ...] [--seconds N] [--corpus DIR]`.

libFuzzer never returns to its caller, so each target runs in a process of its own. What it has
learnt stays in the corpus folder and is where the next run begins. An input that breaks a rule is
written beside it; put it into `seeds/<target>/` as a .bin, where every run of the tests tries it,
and mend what it found. Exit code: 0, or 1 if a target found something.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

INPUT_BYTES_MAX = 4096
ONE_INPUT_S = 20  # an input that takes longer hangs
MEMORY_MIB = 2048


def main(argv: list[str]) -> int:
    """Fuzz the named targets, or all, for some seconds each."""
    parser = argparse.ArgumentParser(prog="build.py fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--corpus", type=Path, default=Path(".build", "fuzz"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.inside:
        return _fuzz(given.targets[0], given.corpus, given.seconds)
    from tests.fuzz.targets import TARGETS

    unknown = sorted(set(given.targets) - TARGETS.keys())
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    found = [
        name
        for name in given.targets or TARGETS
        if not _survives(name, given.corpus, given.seconds)
    ]
    print(f"found something: {', '.join(found)}" if found else "nothing found", flush=True)
    return 1 if found else 0


def _survives(name: str, corpus: Path, seconds: int) -> bool:
    """Fuzz one target in a process; say whether no input broke a rule."""
    folder = corpus / name
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    command = [sys.executable, "-m", "tests.fuzz.run", name, "--inside"]
    with log.open("wb") as output:
        code = subprocess.call(
            [*command, "--seconds", str(seconds), "--corpus", str(folder)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    lines = log.read_text("utf-8", "replace").splitlines()
    last = next((line for line in reversed(lines) if "cov:" in line), "")
    print(f"{name}: {'ok' if code == 0 else f'FOUND, see {log}'}  {last}", flush=True)
    return code == 0


def _fuzz(name: str, folder: Path, seconds: int) -> int:
    """Never returns while it goes well: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["agentstate", "h11"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    begun = folder / "begun"
    begun.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (begun / f"{number}.bin").write_bytes(seed)
    flags = [
        f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={ONE_INPUT_S}",
        f"-rss_limit_mb={MEMORY_MIB}", f"-artifact_prefix={folder}/found-", "-verbosity=1",
    ]  # fmt: skip
    atheris.Setup([name, *flags, str(folder / "corpus"), str(begun)], target.check)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
