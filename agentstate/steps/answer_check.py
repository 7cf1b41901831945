"""Whether what a person wrote as a whole answer is one that clients can read. Pure.

The forms are in `dialects/answer_schemas.py`; here they are held against a body, and what does not
fit is named by its place.
"""

from __future__ import annotations

from collections.abc import Collection

from agentstate.dialects.answer_schemas import answer_schema, parts_in
from agentstate.dialects.lenient import as_list, as_object
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest, shorten
from agentstate.steps.schema import check_value


def check_answer(
    name: str, written: dict[str, JSON], whole: JSON, reasons: Collection[str]
) -> None:
    """Check an answer that a person wrote in the form `name`.

    `whole` is the answer with what `written` leaves out; `reasons` are those for which the answer
    before it ended, so may this one.

    Raises:
        BadRequest: clients could not read it; the message says what was expected where, and what
            was found. Or nothing that is written is a part of the form.
    """
    schema = answer_schema(name, reasons)
    if schema is None:
        return
    known = as_object(schema["properties"])
    if written.keys().isdisjoint(known):
        found = ", ".join(map(shorten, list(written)[:8])) or "no key"
        raise BadRequest(
            f"The body must have one of {', '.join(known)}, as an answer of the form {name} has; "
            f"found {found}. What it leaves out stays.",
            param="body",
        )
    problem = f"The new answer would be none of the form {name}"
    check_value(whole, schema, problem, "body")
    for place, part, form in parts_in(name, whole):
        check_value(part, form, problem, f"body.{place}")
    for key in ("choices", "candidates"):
        _check_indexes(as_list(as_object(whole).get(key)), key)


def _check_indexes(choices: list[JSON], key: str) -> None:
    indexes = [
        encode(as_object(choice).get("index", number)).decode()
        for number, choice in enumerate(choices)
    ]
    if sorted(indexes) != sorted(map(str, range(len(choices)))):
        raise BadRequest(
            f"The {key} must have the indexes from 0, each once; found {', '.join(indexes)}.",
            param=f"body.{key}",
        )
