"""Reads the case files and applies the tables to them.

Strings that start with `b64:` are raw bytes, `{"$repeat": [s, n]}` and `{"$concat": [...]}` are
spelled out, `{{name}}` takes a value of `matrix` and `{{name.0}}` its first item. What `tables.py`
says is put into each file before anything else, so the rest of the suite sees only what is to be
played and checked.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases.tables import DIFFERS, LATER, SCALE, SET_UP, Settled

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Case:
    """One case, one value of its matrix, with the tables applied."""

    name: str  # the file's id, with the variant's number where there is a matrix
    file_id: str
    client: dict[str, Any]
    upstream: list[dict[str, Any]]
    expect: dict[str, Any]
    variant: Any  # the matrix value; None = no matrix
    later: str | None  # why the whole case waits; None = it is played
    scale: float

    @property
    def setup(self) -> dict[str, Any]:
        """The configuration it wants of the proxy."""
        return dict(self.client.get("setup", {}))

    @property
    def harms_proxy(self) -> bool:
        """Whether it measures or hurts the proxy, which then need not end well."""
        actions = {item.get("action") for item in self.client.get("then", [])}
        return "proxy" in self.expect or "disk" in self.setup or "restart_proxy" in actions

    @property
    def needs_own_proxy(self) -> bool:
        """Whether it cannot share a proxy: it harms it, or has servers of its own behind it."""
        return self.harms_proxy or not {"webhooks", "fallback", "route"}.isdisjoint(self.setup)

    def entries_to(self, name: str) -> list[dict[str, Any]]:
        """Return the part of the script that one server plays."""
        return [entry for entry in self.upstream if entry["to"] == name]


def load_cases() -> list[Case]:
    """Read every case file; one `Case` per file and matrix value."""
    found = [case for path in sorted(FOLDER.glob("*.json")) for case in _read_file(path)]
    known = {case.file_id for case in found}
    for table in (LATER, DIFFERS, SET_UP, SCALE):
        assert not (unknown := set(table) - known), (
            f"tables name cases that do not exist: {unknown}"
        )
    return found


def _read_file(path: Path) -> Iterator[Case]:
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert raw["id"] == path.stem
    unknown = set(raw) - {"id", "source", "area", "symptom", "client", "upstream", "expect", "why"}
    assert not unknown, f"{path.name} has unknown parts {unknown}"
    rows = [table[path.stem] for table in (LATER, DIFFERS, SET_UP) if path.stem in table]
    if any(row.drop == ("*",) for row in rows):
        reason = next(row.reason for row in rows if row.drop == ("*",))
        yield Case(path.stem, path.stem, {}, [], {}, None, reason, 1.0)
        return
    for row in rows:
        apply_row(raw, row)
    matrix = raw["client"].pop("matrix", None)
    variants: list[tuple[str, Mapping[str, Any], Any]] = [(path.stem, {}, None)]
    if matrix is not None:
        ((name, values),) = matrix.items()
        variants = [(f"{path.stem}-{n}", _bound(name, v), v) for n, v in enumerate(values)]
    scale = SCALE.get(path.stem, 1.0)
    for case_name, bound, variant in variants:
        client, upstream, expect = (
            expand(raw[key], bound) for key in ("client", "upstream", "expect")
        )
        yield Case(case_name, path.stem, client, upstream, expect, variant, None, scale)


def _bound(name: str, value: Any) -> dict[str, Any]:
    """Return what a value of the matrix fills: its name, and that of each item if it is a list."""
    items = value if isinstance(value, list) else []
    return {name: value, **{f"{name}.{place}": item for place, item in enumerate(items)}}


def apply_row(raw: dict[str, Any], row: Settled) -> None:
    """Take out and put in what a table says. A row that names nothing is stale: an error."""
    for dotted in row.drop:
        *way, last = dotted.split(".")
        parent: Any = raw
        for key in way:
            parent = parent[int(key) if isinstance(parent, list) else key]
        del parent[int(last) if isinstance(parent, list) else last]
    for dotted, value in row.put.items():
        *way, last = dotted.split(".")
        parent = raw
        for key in way:
            parent = parent[int(key)] if isinstance(parent, list) else parent.setdefault(key, {})
        parent[int(last) if isinstance(parent, list) else last] = copy.deepcopy(value)


def expand(value: Any, bound: Mapping[str, Any]) -> Any:
    """Spell out the notation of the files; `bound` fills what stands in double braces."""
    match value:
        case {"$repeat": [text, count]}:
            return expand(text, bound) * count
        case {"$concat": [*parts]}:
            return "".join(expand(part, bound) for part in parts)
        case dict():
            return {key: expand(inner, bound) for key, inner in value.items()}
        case list():
            return [one for inner in value for one in _expand_item(inner, bound)]
        case str():
            return _fill(value, bound)
        case _:
            return value


def _expand_item(item: Any, bound: Mapping[str, Any]) -> list[Any]:
    match item:
        case {"$repeat": [text, count]}:  # in a list: that many items
            return [expand(text, bound)] * count
        case _:
            return [expand(item, bound)]


def _fill(text: str, bound: Mapping[str, Any]) -> Any:
    if text == "{{ 'a'*4096 }}":
        return "a" * 4096
    for name, value in bound.items():
        if text == "{{" + name + "}}":
            return _fill(value, {}) if isinstance(value, str) else value
        shown = value if isinstance(value, str) else json.dumps(value)
        text = text.replace("{{" + name + "}}", shown)
    assert not re.search(r"\{\{ ?[a-z_']", text), f"nothing fills {text[:80]!r}"
    return text


def to_bytes(text: str) -> bytes:
    """Return the bytes a string of a case stands for."""
    return base64.b64decode(text[4:]) if text.startswith("b64:") else text.encode()
