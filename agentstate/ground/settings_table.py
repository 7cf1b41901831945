"""The table of all settings, made of the dataclasses in `settings.py`: a field is a row.

From it come the checks of `agentstate.toml`, the environment names, `--help` and the README's
table. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agentstate.ground.settings import (
    ENV_PREFIX,
    Form,
    Kind,
    ProviderSettings,
    RouteSettings,
    RuleSettings,
    Settings,
    Value,
    WebhookSettings,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as the table shows it and as `load.py` checks it."""

    section: str  # '' = a top-level key; one of `REPEATED` = a key of each table of that name
    key: str
    kind: Kind
    choices: tuple[str, ...]  # () = any value of its kind
    is_optional: bool  # None is a value, and the default
    default: Value
    least: float  # of numbers
    most: float | None  # None = no upper bound
    form: Form
    is_secret: bool
    flag: str | None
    env: tuple[str, ...]  # most to least important; () for what comes in rows
    help: str

    @property
    def name(self) -> str:
        """Return "section.key", or the key alone at the top level."""
        return f"{self.section}.{self.key}" if self.section else self.key

    @property
    def is_repeated(self) -> bool:
        """Whether it is set once for each of several tables, so only in the file."""
        return self.section in REPEATED

    @property
    def expects(self) -> str:
        """Say what a value must be, as in "an integer from 0 to 65535"."""
        if self.choices:
            return " or ".join(f'"{choice}"' for choice in self.choices)
        match self.kind:
            case "text":
                return _TEXTS[self.form][0]
            case "switch":
                return "true or false"
            case "list":
                return f"a list of {_TEXTS[self.form][1]}"
            case "integer" | "number":
                noun = "an integer" if self.kind == "integer" else "a number"
                least = f"{self.least:g}"
                return f"{noun} from {least}" + ("" if self.most is None else f" to {self.most:g}")

    @property
    def shown_default(self) -> str:
        """Return the default as `agentstate.toml` would say it; '' = none."""
        match self.default:
            case None:
                return ""
            case bool():
                return "true" if self.default else "false"
            case str():
                return f'"{self.default}"'
            case tuple():
                return "[" + ", ".join(f'"{item}"' for item in self.default) + "]"
            case int() | float():
                return str(self.default)


# Tables that a file can have several of, as in [[provider]]; the tuple that holds them has no row.
REPEATED: Mapping[str, type] = {
    "gate.rule": RuleSettings,
    "forward.route": RouteSettings,
    "webhook": WebhookSettings,
    "provider": ProviderSettings,
}

# Where the rows of each stand in `Settings`.
_PLACES: Mapping[str, tuple[str, ...]] = {
    "gate.rule": ("gate", "rules"),
    "forward.route": ("forward", "routes"),
    "webhook": ("webhooks",),
    "provider": ("providers",),
}

# What a text of a form is called: one, several.
_TEXTS: Mapping[Form, tuple[str, str]] = {
    "plain": ("text that is not empty", "text"),
    "pattern": ("a regular expression", "regular expressions"),
    "glob": ("a glob of names", "globs of names"),
    "condition": ("a condition", "conditions"),
    "url": ("a URL", "URLs"),
}


@cache
def settings_table() -> tuple[Row, ...]:
    """Return every setting in the order of a file: top-level keys first, `[[provider]]` last."""
    hints = get_type_hints(Settings)
    rows_of_files = ("webhooks", "providers")
    top = [member for member in fields(Settings) if member.name not in rows_of_files]
    rows: list[Row] = []
    for member in sorted(top, key=lambda member: is_dataclass(hints[member.name])):
        if is_dataclass(hints[member.name]):
            rows += _section_rows(member.name, hints[member.name])
            for name, table in REPEATED.items():
                if name.startswith(f"{member.name}."):
                    rows += _section_rows(name, table)
        else:
            rows.append(_row("", member, hints[member.name]))
    for name in ("webhook", "provider"):
        rows += _section_rows(name, REPEATED[name])
    return tuple(rows)


def owners_of(settings: Settings, section: str) -> Iterator[tuple[str, Any]]:
    """Yield what holds the values of a section, with what stands before its keys in names of
    settings: "server", of several tables "provider.openai" or "gate.rule.1", "" at the top."""
    if section not in REPEATED:
        yield section, getattr(settings, section) if section else settings
        return
    owners: Any = settings
    for step in _PLACES[section]:
        owners = getattr(owners, step)
    for number, owner in enumerate(owners, start=1):
        yield f"{section}.{getattr(owner, 'name', None) or number}", owner


def _section_rows(section: str, table: type) -> Iterator[Row]:
    hints = get_type_hints(table)
    for member in fields(table):
        if member.metadata:  # else it holds rows of its own, as [[gate.rule]]
            yield _row(section, member, hints[member.name])


def _row(section: str, member: Field[Any], hint: Any) -> Row:
    kind, choices, is_optional = _kind(hint)
    own_name = "_".join(part for part in (section, member.name) if part).upper()
    meta = member.metadata
    default: Any = member.default  # every setting has one; dataclasses type it as maybe missing
    return Row(
        section=section,
        key=member.name,
        kind=kind,
        choices=choices,
        is_optional=is_optional,
        default=default,
        least=meta["least"],
        most=meta["most"],
        form=meta["form"],
        is_secret=meta["is_secret"],
        flag=meta["flag"],
        env=() if section in REPEATED else (ENV_PREFIX + own_name, *meta["env"]),
        help=meta["help"],
    )


def _kind(hint: Any) -> tuple[Kind, tuple[str, ...], bool]:
    """Return (kind, choices, whether None is allowed) of a field's type."""
    if get_origin(hint) in (Union, UnionType):
        [given] = [each for each in get_args(hint) if each is not NoneType]
        kind, choices, _ = _kind(given)
        return kind, choices, True
    if get_origin(hint) is Literal:
        return "text", get_args(hint), False
    kinds: dict[Any, Kind] = {
        str: "text",
        int: "integer",
        float: "number",
        bool: "switch",
        tuple[str, ...]: "list",
    }
    return kinds[hint], (), False
