"""House style that a program can check. The lists of exceptions are ratchets: they only shrink.

Each rule is a function on one source text and gives the lines that break it, so that each is also
tried on a text that must break it. What ruff and mypy check is not checked again here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FILE_LINES_MAX = 500  # what a person reads in ten minutes
FUNCTION_LINES_MAX = 70  # one screen

# Files over the limit, with the length they have now; one that shrinks below it loses its row.
LONG_FILES: dict[str, int] = {
    "build.py": 588,  # one file, since it runs before there is anything to import
    "agentstate/wire/server.py": 989,
}
# Functions over the limit, as "file:name". It is empty, and so it stays.
LONG_FUNCTIONS: frozenset[str] = frozenset()

# The tops: nobody above could tell anyone. Everywhere else the narrowest class is caught.
CATCH_ALL = {
    "agentstate/__main__.py": "the program",
    "agentstate/wire/server.py": "a connection",
    "agentstate/store/sqlite_writer.py": "the writer's thread",
    "agentstate/wire/client.py": "an upload: it hands the error to who waits for the answer",
    "agentstate/house/outbox.py": "a delivery: one that cannot be sent by a fault of ours must end",
}
PRINTS = ("agentstate/cli", "agentstate/__main__.py", "agentstate/app.py", "agentstate/house/demo",
          "agentstate/house/bench", "agentstate/wire/bare.py", "build.py")  # fmt: skip
STARTS_TASKS = ("agentstate/ground/tasks.py",)
NAMELESS = frozenset(("utils", "util", "helpers", "common", "manager", "misc"))

SKIPPED_FOLDERS = frozenset(("dist", "build", "node_modules", "__pycache__"))
BINARY = frozenset((".png", ".ico", ".woff2", ".gz", ".db", ".pyc", ".bin"))

# Written so that no pattern matches itself: this file is searched as well.
MARKER = re.compile(r"\b(?:FIX[M]E|XX[X]|TOD[O](?!\(#\d+\)))\b")
REGISTRY = re.compile(r"(?:pypi|pythonhosted|npmjs|deb\.debian)[.](?:org|com)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:roo[t]|work/(?:mai[n]|share[d]))\b")
PARSED_MARKUP = re.compile(
    r"\b(?:inner|outer)HTML\b|\binsertAdjacentHTML\b|\bdocument\.write|\beval\("
)

Rule = Callable[[str], Iterator[int]]


def python_files() -> list[Path]:
    return [*sorted((ROOT / "agentstate").rglob("*.py")), ROOT / "build.py"]


def text_files() -> Iterator[Path]:
    """Yield what is under version control, near enough: no build products, caches or binaries."""

    def walk(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".") and path.name not in (".ci", ".gitignore"):
                continue
            if path.is_dir():
                if path.name not in SKIPPED_FOLDERS and not path.name.endswith(".egg-info"):
                    yield from walk(path)
            elif path.suffix not in BINARY:
                yield path

    return walk(ROOT)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def faults_of(rule: Rule, allowed: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{relative(path)}:{line}"
        for path in python_files()
        if not relative(path).startswith(allowed or ("\0",))
        for line in rule(path.read_text(encoding="utf-8"))
    ]


# -- rules


def long_functions(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield node.name, lines


def catches_all(source: str) -> Iterator[int]:
    """`except:`, `except Exception` and `except BaseException`, but for those that raise again."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type):
            last = node.body[-1]
            if not (isinstance(last, ast.Raise) and last.exc is None):
                yield node.lineno


def _is_broad(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(
        each is None or (isinstance(each, ast.Name) and each.id in ("Exception", "BaseException"))
        for each in kinds
    )


def passes_without_reason(source: str) -> Iterator[int]:
    """`except X: pass` with no comment that says why that is right."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and isinstance(node.body[0], ast.Pass):
            has_reason = any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
            if not has_reason:
                yield node.lineno


def prints(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print" | "breakpoint")):
                yield node.lineno


def starts_bare_tasks(source: str) -> Iterator[int]:
    """A task nobody owns may be collected in the middle, and its error is lost: use a TaskSet."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr="create_task" | "ensure_future"):
                yield node.lineno
            case ast.alias(name="create_task" | "ensure_future"):
                yield node.lineno


def reads_wall_clock(source: str) -> Iterator[int]:
    """`datetime.now()` and its like: time comes from ground/clock.py alone."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=attr):
                if attr in ("now", "utcnow", "today"):
                    yield node.lineno


def leftover_markers(source: str) -> Iterator[int]:
    return _lines_with(MARKER, source)


def names_registry(source: str) -> Iterator[int]:
    return _lines_with(REGISTRY, source)


def names_machine_path(source: str) -> Iterator[int]:
    return _lines_with(MACHINE_PATH, source)


def parses_markup(source: str) -> Iterator[int]:
    return _lines_with(PARSED_MARKUP, source)


def _lines_with(pattern: re.Pattern[str], source: str) -> Iterator[int]:
    for number, line in enumerate(source.splitlines(), start=1):
        if pattern.search(line):
            yield number


# -- the tree as it is


def test_files_can_be_read_in_ten_minutes() -> None:
    lengths = {relative(path): len(path.read_bytes().splitlines()) for path in python_files()}

    too_long = {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX}

    assert {n: lines for n, lines in too_long.items() if lines > LONG_FILES.get(n, 0)} == {}
    assert LONG_FILES.keys() - too_long.keys() == set(), "these have shrunk: remove their rows"


def test_functions_fit_on_a_screen() -> None:
    too_long = {
        f"{relative(path)}:{name}"
        for path in python_files()
        for name, _ in long_functions(path.read_text(encoding="utf-8"))
    }

    assert too_long == LONG_FUNCTIONS


def test_only_the_tops_catch_everything() -> None:
    tops = {fault.partition(":")[0] for fault in faults_of(catches_all)}

    assert tops - CATCH_ALL.keys() == set()
    assert CATCH_ALL.keys() - tops == set(), "these no longer do: remove their rows"


def test_no_exception_is_passed_over_without_a_reason() -> None:
    assert faults_of(passes_without_reason) == []


def test_only_what_talks_to_a_terminal_prints() -> None:
    assert faults_of(prints, PRINTS) == []


def test_tasks_have_an_owner() -> None:
    assert faults_of(starts_bare_tasks, STARTS_TASKS) == []


def test_time_has_one_source() -> None:
    assert faults_of(reads_wall_clock) == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        relative(path)
        for path in python_files()
        if ast.get_docstring(ast.parse(path.read_bytes())) is None
    ]

    assert silent == []


def test_modules_are_named_for_what_they_are() -> None:
    assert [relative(path) for path in python_files() if path.stem in NAMELESS] == []


@pytest.mark.parametrize("rule", [leftover_markers, names_registry, names_machine_path])
def test_no_text_has_leftovers_or_names_a_machine(rule: Rule) -> None:
    faults = [
        f"{relative(path)}:{line}"
        for path in text_files()
        if path.suffix != ".md" or rule is not leftover_markers  # prose may speak of them
        for line in rule(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert faults == []


def test_the_dashboard_builds_nodes_and_parses_none() -> None:
    faults = [
        f"{relative(path)}:{line}"
        for path in sorted((ROOT / "web").rglob("*.js"))
        for line in parses_markup(path.read_text(encoding="utf-8"))
    ]

    assert faults == []


# -- the rules themselves: each must be able to fail


@pytest.mark.parametrize(
    ("rule", "broken", "fine"),
    [
        (catches_all, "try: f()\nexcept: g()", "try: f()\nexcept ValueError: g()"),
        (catches_all, "try: f()\nexcept Exception as e: g(e)", "try: f()\nexcept Exception: raise"),
        (
            catches_all,
            "try: f()\nexcept (OSError, BaseException): g()",
            "try: f()\nexcept BaseException:\n g()\n raise",
        ),
        (
            passes_without_reason,
            "try: f()\nexcept OSError:\n pass",
            "try: f()\nexcept OSError:\n pass  # it is gone already",
        ),
        (prints, "def f():\n print(1)", "def f():\n pprint(1)"),
        (starts_bare_tasks, "asyncio.create_task(f())", "tasks.start(f(), 'f')"),
        (starts_bare_tasks, "from asyncio import ensure_future", "import asyncio"),
        (reads_wall_clock, "datetime.now()", "datetime.fromtimestamp(x, UTC)"),
        (reads_wall_clock, "date.today()", "clock.now_ms()"),
        (leftover_markers, "# " + "TO" + "DO" + " later", "# " + "TO" + "DO" + "(#12) later"),
        (leftover_markers, "# FIX" + "ME", "# fixed"),
        (names_registry, "https://pypi" + ".org/simple", "https://example.org"),
        (names_machine_path, "cd /wo" + "rk/main", "cd /workspace"),
        (names_machine_path, "'/ro" + "ot/x'", "/rooted, a/ro" + "ot, ~/ro" + "ot"),
        (parses_markup, "node.inner" + "HTML = x", "node.textContent = x"),
    ],
)
def test_a_rule_tells_right_from_wrong(rule: Rule, broken: str, fine: str) -> None:
    assert list(rule(broken)) != []
    assert list(rule(fine)) == []


def test_a_function_over_the_limit_is_found() -> None:
    long = "def f():\n" + " x = 1\n" * FUNCTION_LINES_MAX
    fits = "def f():\n" + " x = 1\n" * (FUNCTION_LINES_MAX - 1)

    assert [name for name, _ in long_functions(long)] == ["f"]
    assert list(long_functions(fits)) == []
