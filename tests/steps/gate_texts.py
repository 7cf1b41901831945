"""The ways in which a text spells a call, as frameworks without native tools have their models do.

Each begins with the first character that may not go out before a decision.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.steps.gate_parts import TOOL

# Names that a text can hold as they are in all of these forms.
TEXT_NAMES = (TOOL, "DELETE_ROWS", "delete-rows", "mcp__db__delete_rows", "functions.delete_rows")


def _arguments(secret: str) -> str:
    return json.dumps({"table": secret})


def _object(name: str, secret: str, called: str, given: str) -> str:
    return json.dumps({called: name, given: {"table": secret}})


def _escaped(name: str, secret: str) -> str:
    letters = "".join(f"\\u{ord(char):04x}" for char in name)
    return f'{{"\\u0061ction": "{letters}", "action_input": {_arguments(secret)}}}'


def _action_last(name: str, secret: str) -> str:
    said = {"thought": "so be it", "action_input": {"table": secret}, "action": name}
    return json.dumps(said, indent=1)


def _name_last(name: str, secret: str) -> str:
    return json.dumps({"type": "function", "parameters": {"table": secret}, "name": name})


# name, secret → text
TEXT_FORMS: dict[str, Callable[[str, str], str]] = {
    "action": lambda name, secret: f"Action: {name}\nAction Input: {_arguments(secret)}\n",
    "action in bold": lambda name, secret: (
        f"Action:** {name}\n**Action Input:** {_arguments(secret)}"
    ),
    "action without a blank": lambda name, secret: f"Action:{name}\nAction Input:{secret}",
    "tool": lambda name, secret: f"Tool: {name}\nTool Input: {_arguments(secret)}",
    "action with brackets": lambda name, secret: f"Action: {name}[{secret}]\n",
    "action object": lambda name, secret: _object(name, secret, "action", "action_input"),
    "action last": _action_last,
    "python object": lambda name, secret: repr({"action": name, "action_input": {"table": secret}}),
    "tool object": lambda name, secret: _object(name, secret, "tool", "tool_input"),
    "name and arguments": lambda name, secret: _object(name, secret, "name", "arguments"),
    "arguments and name": lambda name, secret: json.dumps(
        {"arguments": {"table": secret}, "name": name}
    ),
    "name last": _name_last,
    "escaped": _escaped,
    "hermes": lambda name, secret: (
        f"<tool_call>\n{_object(name, secret, 'name', 'arguments')}\n</tool_call>"
    ),
    "llama": lambda name, secret: f"<function={name}>{_arguments(secret)}</function>",
    "invoke": lambda name, secret: (
        f'<invoke name="{name}"><parameter name="table">{secret}</parameter></invoke>'
    ),
    "xml": lambda name, secret: f"<tool>{name}</tool><tool_input>{secret}</tool_input>",
    "mistral": lambda name, secret: f"[TOOL_CALLS][{_object(name, secret, 'name', 'arguments')}]",
    "list": lambda name, secret: f"[{_object(name, secret, 'tool', 'tool_input')}]",
    "fenced": lambda name, secret: (
        f"```json\n{_object(name, secret, 'action', 'action_input')}\n```"
    ),
}

# What may go out before it.
BEFORE = (
    "",
    "I look it up. ",
    "Thought: the user wants it, \u00e4 \U0001f600.\n",
    "Action: get_weather\nAction Input: {}\nObservation: rain\n",
    'I saw {"name": "x"} and <b>.\n',
)
