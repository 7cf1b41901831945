"""What was said, as it stands in the requests of agents, so that it can be compared. Pure.

Agents rewrite what models said: they trim it, and write arguments anew. So arguments are compared
by their meaning, and messages in neutral form.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentstate.dialects.base import Dialect
from agentstate.dialects.lenient import Unreadable, read_exact
from agentstate.dialects.neutral import Text, Turn, translates
from agentstate.ground.canonical import JSON, canonical
from agentstate.ground.errors import BadRequest
from agentstate.ground.redaction import NOTHING_KNOWN

# Whose message it is, in the words of all dialects; items of Responses need not say.
MODELS = ("assistant", "model")
OTHERS = ("user", "tool", "function", "system", "developer")


def calm(arguments: str) -> str:
    """Return arguments in one way of writing them; no JSON without its white space.

    Without secrets: in the answer that made a call they stand as they came, in requests they do
    not.
    """
    try:
        return canonical(NOTHING_KNOWN.value(read_exact(arguments or "{}"))).decode("ascii")
    except (Unreadable, BadRequest):
        return "".join(NOTHING_KNOWN.text(arguments).split())


def read_turns(dialect: Dialect, messages: Sequence[JSON]) -> tuple[Turn, ...]:
    """Return messages in neutral form; none of a form that has none, or that cannot be read."""
    if not translates(dialect):
        return ()
    try:
        return dialect.read_request({"model": "", dialect.list_key: list(messages)}).turns
    except (BadRequest, RecursionError):
        return ()


def only_text(turns: Sequence[Turn]) -> str | None:
    """Return the text of a user's message that is nothing else."""
    if len(turns) != 1 or turns[0].role != "user" or len(turns[0].items) != 1:
        return None
    (item,) = turns[0].items
    return item.text if isinstance(item, Text) else None
