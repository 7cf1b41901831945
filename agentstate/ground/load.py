"""Flags > environment > `agentstate.toml` > defaults, checked, with the place of every value.

Reads one file and nothing else; the environment comes in as a value. What is wrong is refused here
and nowhere later: a `SettingError` names file, line and the nearest known key. The table of what
may be set is `settings_table.py`; providers and webhooks, which come in rows, are put together in
`providers.py` and `webhooks.py`.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from agentstate.ground.addresses import url_problem
from agentstate.ground.conditions import Condition
from agentstate.ground.errors import SettingError, shorten
from agentstate.ground.globs import check_glob
from agentstate.ground.providers import build_providers
from agentstate.ground.settings import (
    ENV_PREFIX,
    FileRow,
    Loaded,
    RouteSettings,
    RuleSettings,
    Settings,
    Value,
    read_network,
)
from agentstate.ground.settings_table import REPEATED, Row, settings_table
from agentstate.ground.webhooks import build_webhooks

T = TypeVar("T")

FILE_NAME = "agentstate.toml"
FILE_BYTES_MAX = 1024 * 1024  # a thousand times what a long configuration needs
EXACT_FLOAT = 2**53  # a larger integer is not the same number as a float
SWITCHES = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False, "no": False, "off": False, "0": False
}  # fmt: skip

# What Kubernetes puts into every pod for a Service called "agentstate-server": not meant for us.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT\w*)$|_PORT_[0-9]+_(TCP|UDP|SCTP)\w*$")
_SERVICE_VALUE = re.compile(r"(tcp|udp|sctp)://")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]#]+?)\s*\]")
_DOT = re.compile(r"""["']?\s*\.\s*["']?""")


def load_settings(
    argv_values: Mapping[str, str], environ: Mapping[str, str], cwd: Path, config: Path | None
) -> Loaded:
    """Put the settings together.

    `argv_values` maps names as in "server.port" to what the flag said. `config` None means
    `agentstate.toml` in `cwd`, if there is one. Empty environment variables count as not set.

    Raises:
        SettingError: anything unknown, of a wrong type, out of range, or missing.
    """
    file = _read_file(cwd, config)
    environ = _without_service_links(environ)
    table = [row for row in settings_table() if not row.is_repeated]
    _refuse_unknown_keys(file)
    _refuse_unknown_names(environ)
    values: dict[str, Value] = {}
    sources: dict[str, str] = {}
    for row in table:
        values[row.name], sources[row.name] = _find(row, argv_values, environ, file)

    sections: dict[str, Any] = {}
    for member in fields(Settings):
        keys = [row.key for row in table if row.section == member.name]
        if keys:
            section_class: Any = member.default_factory
            sections[member.name] = section_class(
                **{key: values[f"{member.name}.{key}"] for key in keys}
            )
    sections |= {row.key: values[row.name] for row in table if not row.section}

    rules, places = _read_numbered(file, "gate.rule", RuleSettings, environ)
    routes, of_routes = _read_numbered(file, "forward.route", RouteSettings, environ)
    sections["gate"] = replace(sections["gate"], rules=rules)
    sections["forward"] = replace(sections["forward"], routes=routes)
    providers = _read_rows(file, "provider", environ)
    built = build_providers(providers, environ, sections["server"])
    hooks = build_webhooks(_read_rows(file, "webhook", environ), environ)
    return Loaded(
        settings=Settings(providers=built.providers, webhooks=hooks.webhooks, **sections),
        sources=sources | places | of_routes | hooks.sources | built.sources,
        warnings=built.warnings,
        network=read_network(environ),
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that helps who wrote `name`: the nearest known one, or all of them."""
    names = sorted(known)
    found = difflib.get_close_matches(name, names, n=1)
    return f'Did you mean "{found[0]}"?' if found else f"Known are: {', '.join(names)}."


@dataclass(frozen=True, slots=True)
class _File:
    """The configuration file, parsed; empty where there is none."""

    name: str  # for messages
    text: str
    tree: dict[str, Any]

    def rows(self, section: str) -> Any:
        """Return the tables of a section that is written [[section]], [] if there is none."""
        outer, _, name = section.rpartition(".")
        table = self.tree.get(outer, {}) if outer else self.tree
        return table.get(name, [])

    def place(self, section: str, key: str | None = None, position: int = 0) -> str:
        """Return "file:line" of a key, or of its section; "file" where it cannot be found."""
        line = _line_of(self.text, section, key, position)
        if line is None and "." in section:
            outer, _, name = section.rpartition(".")
            line = _line_of(self.text, outer, name, 0)  # rule = [{ ... }]
        return self.name if line is None else f"{self.name}:{line}"


def _read_file(cwd: Path, config: Path | None) -> _File:
    path = cwd / (config or FILE_NAME)
    name = str(config or FILE_NAME)
    try:
        with path.open("rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        if config is None:
            return _File(name, "", {})
        raise SettingError(f"{name}: there is no such file. Check what --config says.") from error
    except OSError as error:
        raise SettingError(f"{name}: cannot be read: {error.strerror}.") from error
    if len(raw) > FILE_BYTES_MAX:
        raise SettingError(f"{name}: a configuration of over {FILE_BYTES_MAX} bytes is refused.")
    try:
        text = raw.decode("utf-8")
        return _File(name, text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        raise SettingError(f"{name}: must be UTF-8; byte {error.start} is not.") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{name}: is not TOML: {error}.") from error


def _refuse_unknown_keys(file: _File) -> None:
    known: dict[str, set[str]] = {}
    for row in settings_table():
        known.setdefault(row.section, set()).add(row.key)
    for section in REPEATED:
        outer, _, name = section.rpartition(".")
        known[outer].add(name)
    names = {section for section in known if section and "." not in section} | known[""]
    for section, content in file.tree.items():
        if section not in names:
            raise SettingError(
                f"{file.place(section)}: unknown section or key {shorten(section)!r}. "
                f"{nearest(section, names)}"
            )
        if section in known and section not in REPEATED:
            _refuse_unknown_keys_of(file, section, content, 0, known[section])
    for section in REPEATED:
        tables = file.rows(section)
        if not isinstance(tables, list):
            raise _no_table(file, section)
        for position, table in enumerate(tables):
            _refuse_unknown_keys_of(file, section, table, position, known[section])


def _refuse_unknown_keys_of(
    file: _File, section: str, table: Any, position: int, known: set[str]
) -> None:
    if not isinstance(table, dict):
        raise _no_table(file, section)
    for key in table:
        if key not in known:
            raise SettingError(
                f"{file.place(section, key, position)}: unknown key {shorten(key)!r} in "
                f"[{section}]. {nearest(key, known)}"
            )


def _no_table(file: _File, section: str) -> SettingError:
    form = f"[[{section}]]" if section in REPEATED else f"[{section}]"
    return SettingError(f"{file.place(section)}: {section} must be a table: write {form}.")


def _without_service_links(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(ENV_PREFIX)
        or not (_SERVICE_LINK.search(name) or _SERVICE_VALUE.match(value))
    }


def _refuse_unknown_names(environ: Mapping[str, str]) -> None:
    """Refuse AGENTSTATE_<SECTION>_... that is no setting; other AGENTSTATE_ names are not ours."""
    rows = settings_table()
    known = {name for row in rows for name in row.env}
    sections = {row.section for row in rows if row.section}
    prefixes = tuple(f"{ENV_PREFIX}{section.upper()}_" for section in sections)
    for name in sorted(environ):
        if name.startswith(prefixes) and name not in known:
            ours = (each for each in known if each.startswith(ENV_PREFIX))
            raise SettingError(f"environment: unknown setting {name}. {nearest(name, ours)}")


def _find(
    row: Row, argv_values: Mapping[str, str], environ: Mapping[str, str], file: _File
) -> tuple[Value, str]:
    if row.name in argv_values:
        assert row.flag is not None, f"{row.name} has no flag"
        return _convert(row, argv_values[row.name], row.flag, environ), row.flag
    for name in row.env:
        if environ.get(name):
            return _convert(row, environ[name], name, environ), name
    table = file.tree.get(row.section, {}) if row.section else file.tree
    if row.key in table:
        place = file.place(row.section, row.key)
        return _convert(row, table[row.key], f"{place}: {row.name}", environ, typed=True), place
    return row.default, "default"


def _read_rows(file: _File, section: str, environ: Mapping[str, str]) -> list[FileRow]:
    return [
        FileRow(*_read_table(file, section, position, environ), file.place(section, None, position))
        for position in range(len(file.rows(section)))
    ]


def _read_numbered(
    file: _File, section: str, table: type[T], environ: Mapping[str, str]
) -> tuple[tuple[T, ...], dict[str, str]]:
    """Return the rows of a section such as `[[gate.rule]]`, and where each value of them stands."""
    rows: list[T] = []
    sources: dict[str, str] = {}
    for position in range(len(file.rows(section))):
        values, places = _read_table(file, section, position, environ)
        checked: dict[str, Any] = dict(values)  # by the table, which is made of the fields
        rows.append(table(**checked))
        number = position + 1
        sources |= {f"{section}.{number}.{key}": place for key, place in places.items()}
    return tuple(rows), sources


def _read_table(
    file: _File, section: str, position: int, environ: Mapping[str, str]
) -> tuple[dict[str, Value], dict[str, str]]:
    """Return the values of one table of several, and where each stands."""
    values: dict[str, Value] = {}
    places: dict[str, str] = {}
    table: dict[str, Any] = file.rows(section)[position]
    for row in settings_table():
        raw = table.get(row.key) if row.section == section else None
        if raw is not None:
            places[row.key] = file.place(section, row.key, position)
            where = f"{places[row.key]}: {row.name}"
            values[row.key] = _convert(row, raw, where, environ, typed=True)
    return values, places


def _convert(
    row: Row, raw: Any, where: str, environ: Mapping[str, str], *, typed: bool = False
) -> Value:
    """Turn what was given into the setting's type and check it. `typed`: it is a TOML value."""
    if isinstance(raw, str) and raw.startswith("env:"):
        name = raw.removeprefix("env:")
        if not environ.get(name):
            raise SettingError(f"{where}: says {raw}, but {name} is not set. Set it, or remove it.")
        where, raw, typed = f"{where}: {name}", environ[name], False
    value = _typed(row, raw) if typed else _parsed(row, raw)
    if value is None or not _is_allowed(row, value):
        found = "" if row.is_secret else f", found {shorten(repr(raw))}"
        raise SettingError(f"{where}: expected {row.expects}{found}.")
    for text in value if isinstance(value, tuple) else (value,):
        _check_form(row, text, where)
    return value


def _typed(row: Row, raw: Any) -> Value:
    """Return a TOML value as the row's kind, None if it is another. A list may be one text."""
    match row.kind, raw:
        case "switch", bool():
            return raw
        case "integer" | "number", bool():
            return None
        case "integer", int():
            return raw
        case "number", float():
            return raw
        case "number", int():
            return float(raw) if abs(raw) < EXACT_FLOAT else None
        case "text" | "list", str():
            return raw if row.kind == "text" else (raw,)
        case "list", list() if all(isinstance(item, str) for item in raw):
            return tuple(raw)
        case _:
            return None


def _parsed(row: Row, text: str) -> Value:
    """Return text of a flag or the environment as the row's kind, None if it cannot be."""
    match row.kind:
        case "text":
            return text
        case "list":
            return _parsed_list(text)
        case "switch":
            return SWITCHES.get(text.strip().lower())
        case "integer":
            return int(text) if re.fullmatch(r"\s*[-+]?[0-9]{1,18}\s*", text) else None
        case "number":
            try:
                return float(text)
            except ValueError:
                return None


def _parsed_list(text: str) -> Value:
    # A regular expression may hold a comma ("\d{1,3}"), so a JSON list is understood as well. It is
    # the one way to say "none": a stray comma must not be able to empty a list of guarded tools.
    if text.strip() == "[]" or text.lstrip().startswith('["'):
        try:
            items = json.loads(text)
        except ValueError:
            return None
        return tuple(items) if all(isinstance(item, str) for item in items) else None
    return tuple(item.strip() for item in text.split(",") if item.strip()) or None


def _is_allowed(row: Row, value: Value) -> bool:
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        too_high = row.most is not None and value > row.most
        return math.isfinite(value) and value >= row.least and not too_high
    if isinstance(value, str):
        return value in row.choices if row.choices else bool(value.strip())
    return all(item.strip() for item in value)


def _check_form(row: Row, text: Any, where: str) -> None:
    """Refuse text that is not of the row's form."""
    try:
        match row.form:
            case "plain":
                return
            case "pattern":
                re.compile(text)
            case "glob":
                check_glob(text)
            case "condition":
                Condition(text)
            case "url":
                if problem := url_problem(text):
                    raise SettingError(f"expected a URL as in https://host; {problem}.")
    except re.error as error:
        raise SettingError(
            f"{where}: {shorten(text)!r} is no regular expression: {error}."
        ) from error
    except SettingError as error:
        raise SettingError(f"{where}: {error.message}") from error


def _line_of(text: str, section: str, key: str | None, position: int) -> int | None:
    """Find the line of a key, of its section where the key is elsewhere, or None.

    tomllib reports no places, so this reads the text again, line by line, for table headers and
    keys. Forms it does not follow (inline and dotted tables) end at the line of the section.
    """
    header_line: int | None = None
    is_inside, seen = not section, -1
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            name = _DOT.sub(".", header[2]).strip("\"' ")
            seen += name == section
            is_inside = name == section and (header[1] == "[" or seen == position)
            if is_inside and header_line is None:
                header_line = number
            if is_inside and key is None:
                return number
        elif is_inside and key is not None and _names_key(line, key):
            return number
        elif header_line is None and _names_key(line, section):
            header_line = number  # section = { ... } or section.key = ...
    return header_line


def _names_key(line: str, key: str) -> bool:
    return re.match(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""", line) is not None
