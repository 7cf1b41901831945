"""`agentstate export`: what is on record as files for fine-tuning.

The lines come as the management API sends them, with what it tells between them: how far it is,
which part of a split follows, and at the end the manifest. A file gets its name when it is whole:
until then its lines are in FILE.part, so an export that broke off is never taken for one. What is
said of it goes to stderr, a moving line to a terminal alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode

from agentstate.cli_server import Record, ServerSilent
from agentstate.cli_table import cell, inert, print_table
from agentstate.ground.canonical import encode, parse
from agentstate.ground.errors import SettingError
from agentstate.ground.words import counted

STDOUT = Path("-")
BAR_CHARS = 24
PATH_CHARS_MAX = 60
PARTS = ("train", "validation")
# What the verb's flags are called in the API.
QUERY = (
    "format", "status", "tag", "search", "parent", "forked_from", "since", "until", "model", "tool",
    "cost_max_usd", "touched", "include", "dedupe", "images", "split", "seed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be exported, and to where."""

    query: Mapping[str, str]  # as the API takes it; without `report` and `progress`
    session: str | None = None  # None = all
    out: Path = STDOUT
    wants_manifest: bool = False

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Order:
        """Read what the command line says; None = it does not."""
        query = {name: asked[name] for name in QUERY if asked.get(name) is not None}
        return cls(query, asked["session"], asked["out"], asked["manifest"])

    def target(self, **more: str) -> str:
        """Return what to ask the API for."""
        path = "/api/export/dataset"
        if self.session is not None:
            path = f"/api/sessions/{quote(self.session, safe='')}/export"
        return f"{path}?{urlencode({**self.query, **more})}"


def export(record: Record, order: Order) -> int:
    """Write the file, or the two of a split, and say on stderr what is in them.

    Raises:
        SettingError: a split or a manifest needs a FILE.
        Refused: as the API says no.
        ServerSilent: it broke off; no file was written.
    """
    is_split = "split" in order.query
    if order.out == STDOUT and (is_split or order.wants_manifest):
        what = "--split writes two files" if is_split else "--manifest writes a file beside"
        raise SettingError(f"{what}: say with --out FILE where.")
    progress = Progress(sys.stderr)
    with ExitStack() as stack:
        outputs = {
            part: stack.enter_context(open_output(path))
            for part, path in _paths(order.out, is_split=is_split).items()
        }
        with closing(record.stream(order.target(progress="1"))) as chunks:
            manifest = _copy(chunks, outputs, progress)
        progress.end()
    if order.wants_manifest:
        with open_output(beside(order.out, "manifest", ".json")) as file:
            file.write(json.dumps(manifest, indent=2).encode("ascii") + b"\n")
    print("\n".join(summary(manifest, order.out)), file=sys.stderr)
    return 0


def print_report(record: Record, order: Order, *, as_json: bool) -> int:
    """Print what was found in each line, and the sums; no data."""
    with closing(record.stream(order.target(report="1"))) as chunks:
        raw = b"".join(chunks)  # as it comes: going through a large record takes minutes
    if as_json:
        print(encode(parse(raw)).decode("ascii"))
        return 0
    report = json.loads(raw)
    rows = [
        (
            "-" if line["line"] is None else str(line["line"]),
            cell(line["session"]),
            str(line["index"]),
            finding["code"],
            _outcome(line, finding),
            cell(finding["path"], PATH_CHARS_MAX) or "-",
        )
        for line in report["lines"]
        for finding in line["findings"]
    ]
    if rows:
        print_table(("LINE", "SESSION", "INDEX", "FOUND", "SO", "WHERE"), rows)
        print()
    print("\n".join(count_lines(report["counts"])))
    return 0


def beside(out: Path, part: str, suffix: str | None = None) -> Path:
    """Return the name of a file that belongs to another: data.jsonl → data.train.jsonl, which is
    where `datasets` looks for a split."""
    return out.with_name(f"{out.stem}.{part}{out.suffix if suffix is None else suffix}")


def summary(manifest: Mapping[str, Any], out: Path) -> Iterator[str]:
    """Yield what is said at the end of an export."""
    for part, facts in manifest["files"].items():
        path = out if len(manifest["files"]) == 1 else beside(out, part)
        where = "" if out == STDOUT else f" in {inert(str(path))}"
        lines = counted(facts["lines"], "line")
        size = f"{facts['bytes']:,} bytes, about {facts['tokens']:,} tokens"
        yield f"{lines}{where}: {size}" if facts["lines"] else f"No line{where}."
    yield from count_lines(manifest, says_lines=False)


def count_lines(counts: Mapping[str, Any], *, says_lines: bool = True) -> Iterator[str]:
    """Yield the counts of a report or a manifest, a line each; those of nothing are left out."""
    found = counts["findings"]
    if says_lines:
        sessions = counted(counts["sessions"], "session")
        yield f"{counted(counts['lines'], 'line')} of {sessions}"
    if counts["left_out"]:
        lost = counted(counts["left_out"], "line")
        yield f"{lost} could not be saved: {_listed(found['left_out'])}"
    if counts["mended"]:
        yield f"{counted(counts['mended'], 'line')} mended: {_listed(found['mended'])}"
    if found["kept"]:
        yield f"worth a look: {_listed(found['kept'])}"
    if counts["secrets"]:
        yield f"secrets taken out: {_listed(counts['secrets'])}"
    if counts["not_taken"]:
        yield f"not taken: {_listed(counts['not_taken'])}"
    if not counts["lines"] and not counts["left_out"]:
        yield (
            "Nothing that was asked for is on record. What failed, was cut, rolled back or "
            "replaced comes with --include."
        )


class Progress:
    """A line that moves, on a terminal."""

    def __init__(self, terminal: IO[str]) -> None:
        self._terminal = terminal
        self._is_shown = terminal.isatty()
        self._width = 0
        self.lines = 0
        self.written_bytes = 0

    def show(self, done: int, of: int) -> None:
        """Show how far it is."""
        if not self._is_shown:
            return
        share = min(done / of, 1.0) if of else 1.0
        bar = "#" * round(share * BAR_CHARS)
        text = f"[{bar:.<{BAR_CHARS}}] {share:4.0%}  {self.lines:,} lines, {self.written_bytes:,} B"
        self._width = max(self._width, len(text))
        self._terminal.write(f"\r{text:<{self._width}}")
        self._terminal.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._width:
            self._terminal.write("\r" + " " * self._width + "\r")
            self._terminal.flush()
            self._width = 0


@dataclass(slots=True)
class _Cutter:
    """Cuts what comes into lines."""

    _rest: bytearray = field(default_factory=bytearray)

    def cut(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are whole by now, each with its end."""
        self._rest += chunk
        *lines, rest = bytes(self._rest).split(b"\n") if b"\n" in chunk else (self._rest,)
        self._rest = bytearray(rest)
        return [bytes(line) + b"\n" for line in lines]


def _copy(
    chunks: Iterator[bytes], outputs: Mapping[str, IO[bytes]], progress: Progress
) -> dict[str, Any]:
    """Write each line where it belongs; return the manifest that comes last."""
    cutter = _Cutter()
    output = next(iter(outputs.values()))
    manifest: dict[str, Any] | None = None
    try:
        for chunk in chunks:
            for line in cutter.cut(chunk):
                if not line.startswith(b"#"):
                    output.write(line)
                    progress.lines += 1
                    progress.written_bytes += len(line)
                    continue
                told = json.loads(line[1:])
                if "of" in told:
                    progress.show(told["done"], told["of"])
                elif "part" in told:
                    output = outputs.get(told["part"], output)
                else:
                    manifest = told["manifest"]
    finally:
        progress.end()
    if manifest is None:
        raise ServerSilent("The export broke off before its end; no file was written.")
    return manifest


def _paths(out: Path, *, is_split: bool) -> dict[str, Path]:
    return {part: beside(out, part) for part in PARTS} if is_split else {"all": out}


@contextmanager
def open_output(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name at the end, or stdout."""
    if path == STDOUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = path.with_name(path.name + ".part")
    try:
        file = partial.open("wb")
    except OSError as error:
        raise SettingError(f"--out: {inert(str(path))}: {error.strerror}.") from error
    try:
        with file:
            yield file
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _outcome(line: Mapping[str, Any], finding: Mapping[str, Any]) -> str:
    if finding["is_mended"]:
        return "mended"
    is_reason = line["is_left_out"] and finding is line["findings"][-1]
    return "left out" if is_reason else "look at it"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{cell(name)} {count:,}" for name, count in counts.items())
