"""The direction of imports: a module imports floors below it and its own folder, never upward.

The house rule that a test holds (DESIGN: layout). Every import counts, also those inside functions
and under TYPE_CHECKING. A module is named as Python names it; a tree is module name → source text.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A new folder gets its floor here, or the test fails.
FLOORS = {
    "ground": 0,
    "wire": 1,
    "dialects": 2, "store": 2, "webhooks": 2,  # they do not know each other
    "steps": 3,
    "house": 4,
    "doors": 5,
}  # fmt: skip
PORCH = "sdk"  # the client side: nothing of the server, and third-party packages only when called
ROOF = 6  # the modules beside the folders: app, cli, __main__

# Who alone may import what.
WIRE = ("agentstate.wire", "agentstate.wire.*")
ONLY = {
    "h11": WIRE,
    "ssl": WIRE,
    "certifi": WIRE,
    "sqlite3": ("agentstate.store.sqlite*",),
    "time": ("agentstate.ground.clock",),
    # Subclasses of others' clients: each module is loaded when its classes are first asked for.
    "openai": ("agentstate.sdk.openai_clients",),
    "anthropic": ("agentstate.sdk.anthropic_clients",),
    "pytest": ("agentstate.pytest_plugin",),  # by which alone it is loaded
    # The first code of the .pyz runs before the package can be imported.
    "_bootstrap": ("agentstate.unpack",),
}
READS_ENVIRONMENT = ("agentstate.ground.settings", "agentstate.sdk.token", "agentstate.unpack")
ENVIRONMENT = frozenset(("environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"))
# A verb loads its own half of the program when it is called, a fixture when a test wants it,
# a wrapper its own package, a row of STORES its own driver, the package itself its public names.
MAY_IMPORT_INSIDE = (
    "agentstate", "agentstate.cli*", "agentstate.pytest_plugin", "agentstate.unpack",
    "agentstate.sdk.*", "agentstate.store",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, as it stands in a source."""

    module: str
    line: int
    is_inside: bool  # a function


def read_tree() -> dict[str, str]:
    tree: dict[str, str] = {}
    for path in sorted((ROOT / "agentstate").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree[name] = path.read_text(encoding="utf-8")
    return tree


def list_imports(name: str, source: str, tree: Mapping[str, str]) -> Iterator[Import]:
    """Yield what a module imports; `from package import module` as that module."""

    def walk(node: ast.AST, is_inside: bool) -> Iterator[Import]:
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(alias.name, node.lineno, is_inside)
            case ast.ImportFrom(module=None) | ast.ImportFrom(level=1 | 2 | 3 | 4):
                yield Import("." * node.level + (node.module or ""), node.lineno, is_inside)
            case ast.ImportFrom(module=str(module)):
                for alias in node.names:
                    whole = f"{module}.{alias.name}"
                    yield Import(whole if whole in tree else module, node.lineno, is_inside)
        inside = is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(ast.parse(source, name), False)


def find_faults(tree: Mapping[str, str]) -> list[str]:
    """Return every import that goes the wrong way, one line each."""
    faults: list[str] = []
    for name, source in tree.items():
        for found in list_imports(name, source, tree):
            if problem := maybe_problem(name, found):
                faults.append(f"{name}:{found.line} {problem}")
        faults += [f"{name}:{line} reads the environment" for line in reads_environment(source)
                   if name not in READS_ENVIRONMENT]  # fmt: skip
    return faults + [f"a cycle: {' -> '.join(cycle)}" for cycle in find_cycles(tree)]


def maybe_problem(name: str, found: Import) -> str | None:
    target, top = found.module, found.module.partition(".")[0]
    if target.startswith("."):
        return "is a relative import"
    if found.is_inside and not is_one_of(name, MAY_IMPORT_INSIDE):
        return f"imports {target} inside a function"
    if top in ONLY:
        is_allowed = is_one_of(name, ONLY[top])
        return None if is_allowed else f"imports {top}, which only {ONLY[top][0]} may"
    if top == "agentstate":
        return maybe_wrong_way(name, target)
    is_porch = f"{name}.".startswith(f"agentstate.{PORCH}.")
    if top not in sys.stdlib_module_names and not (is_porch and found.is_inside):
        return f"imports {top}, which is neither ours nor of the standard library"
    return None


def maybe_wrong_way(name: str, target: str) -> str | None:
    if target == "agentstate":  # the version, and the porch's public names
        return None
    ours, theirs = folder_of(name), folder_of(target)
    if ours == theirs:
        return None
    if PORCH in (ours, theirs):
        is_front = name == "agentstate" and theirs == PORCH
        return None if is_front else f"imports {target}: {PORCH} and server stay apart"
    if floor_of(theirs) >= floor_of(ours):
        return f"imports {target}, which is not below it"
    return None


def is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def folder_of(name: str) -> str:
    """Return the folder a module is in; '' = the roof."""
    parts = name.split(".")
    is_folder = len(parts) > 2 or (len(parts) == 2 and parts[1] in {*FLOORS, PORCH})
    return parts[1] if is_folder else ""


def floor_of(folder: str) -> int:
    if not folder:
        return ROOF
    assert folder in FLOORS, f"agentstate/{folder}/ has no floor: give it one in {__name__}.FLOORS"
    return FLOORS[folder]


def reads_environment(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in ENVIRONMENT:
                yield node.lineno
            case ast.ImportFrom(module="os", names=names):
                if any(alias.name in ENVIRONMENT for alias in names):
                    yield node.lineno


def find_cycles(tree: Mapping[str, str]) -> list[list[str]]:
    """Return a cycle for each place where following imports comes back to where it was.

    The package itself ends every path: it is loaded before its modules, and names them to type
    checkers alone.
    """
    edges = {
        name: sorted(
            {each.module for each in list_imports(name, source, tree)}
            & tree.keys() - {"agentstate"}
        )
        for name, source in tree.items()
    }
    cycles: list[list[str]] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            cycles.append([*path[path.index(name) :], name])
        elif name not in done:
            for target in edges[name]:
                visit(target, [*path, name])
            done.add(name)

    for name in edges:
        visit(name, [])
    return cycles


# -- the tree as it is


def test_no_import_goes_the_wrong_way() -> None:
    assert find_faults(read_tree()) == []


def test_every_folder_has_a_floor() -> None:
    folders = {
        path.name
        for path in (ROOT / "agentstate").iterdir()
        if path.is_dir() and any(path.glob("*.py"))
    }

    assert folders - {*FLOORS, PORCH} == set()


# -- the rules themselves: each must be able to fail

GROUND = {"agentstate.ground.a": "", "agentstate.ground": ""}


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("agentstate.ground.b", "from agentstate.wire import x", "not below it"),
        ("agentstate.ground.b", "import agentstate.steps.x", "not below it"),
        ("agentstate.wire.b", "from agentstate.store.base import Store", "not below it"),
        ("agentstate.store.b", "from agentstate.dialects.base import x", "not below it"),
        ("agentstate.house.b", "from agentstate.doors.proxy import x", "not below it"),
        ("agentstate.doors.b", "from agentstate.app import serve", "not below it"),
        ("agentstate.doors.api.b", "from agentstate import app, cli", "not below it"),
        ("agentstate.steps", "from agentstate.house.mock import x", "not below it"),
        ("agentstate.sdk.b", "from agentstate.ground.errors import x", "stay apart"),
        ("agentstate.app", "from agentstate.sdk.b import x", "stay apart"),
        ("agentstate.ground.b", "from . import a", "relative import"),
        ("agentstate.ground.b", "from ..ground import a", "relative import"),
        ("agentstate.ground.b", "def f():\n import json", "inside a function"),
        (
            "agentstate.ground.b",
            "if TYPE_CHECKING:\n from agentstate.app import x",
            "not below it",
        ),
        ("agentstate.steps.b", "import h11", "imports h11"),
        ("agentstate.steps.b", "from ssl import SSLContext", "imports ssl"),
        ("agentstate.store.memory", "import sqlite3", "imports sqlite3"),
        ("agentstate.store.memory", "def f():\n import json", "inside a function"),
        ("agentstate.ground.tasks", "import time", "imports time"),
        ("agentstate.app", "import certifi", "imports certifi"),
        ("agentstate.wire.b", "import requests", "neither ours nor"),
        ("agentstate.sdk.b", "import openai", "imports openai"),
        ("agentstate.sdk.b", "import requests", "neither ours nor"),
        ("agentstate.app", "def f():\n import json", "inside a function"),
        ("agentstate.app", "import os\nprint(os.environ)", "reads the environment"),
        ("agentstate.app", "from os import getenv", "reads the environment"),
    ],
)
def test_a_wrong_import_is_found(name: str, source: str, fault: str) -> None:
    tree = {**GROUND, "agentstate.app": "", "agentstate.cli": "", name: source}

    faults = find_faults(tree)

    assert [fault in line for line in faults][:1] == [True], faults
    assert all(line.startswith(f"{name}:") for line in faults)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("agentstate.ground.b", "from agentstate.ground.a import x\nimport json"),
        ("agentstate.wire.b", "import h11, ssl, certifi\nfrom agentstate.ground import a"),
        ("agentstate.wire", "import h11"),
        ("agentstate.store.sqlite", "import sqlite3"),
        ("agentstate.store.sqlite_writer", "import sqlite3"),
        ("agentstate.ground.clock", "import time"),
        ("agentstate.ground.settings", "import os\nprint(os.environ)"),
        ("agentstate.doors.api.b", "from agentstate.doors.proxy import x"),
        ("agentstate.doors.b", "from agentstate import __version__"),
        ("agentstate.cli_x", "def f():\n from agentstate.app import serve"),
        ("agentstate.app", "from agentstate.doors.front import x"),
        ("agentstate.sdk.b", "def f():\n import httpx"),
        ("agentstate.sdk.openai_clients", "import openai"),
        ("agentstate", "def f():\n from agentstate.sdk.b import x"),
        ("agentstate.store", "def f():\n import agentstate.store.sqlite"),
        ("agentstate", "from agentstate.sdk.b import x"),
        ("agentstate.house.b", "import os\nprint(os.getpid())"),
    ],
)
def test_a_right_import_is_let_through(name: str, source: str) -> None:
    assert find_faults({**GROUND, "agentstate.app": "", name: source}) == []


def test_a_cycle_is_found_and_shown() -> None:
    tree = {
        "agentstate.ground.a": "from agentstate.ground.b import x",
        "agentstate.ground.b": "from agentstate.ground import c",
        "agentstate.ground.c": "import agentstate.ground.a",
    }

    assert find_faults(tree) == [
        "a cycle: agentstate.ground.a -> agentstate.ground.b -> agentstate.ground.c "
        "-> agentstate.ground.a"
    ]


def test_a_folder_without_a_floor_is_an_error() -> None:
    tree = {"agentstate.attic.a": "from agentstate.ground.a import x", **GROUND}

    with pytest.raises(AssertionError, match="agentstate/attic/ has no floor"):
        find_faults(tree)
