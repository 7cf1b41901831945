"""Rounds in the Responses form: the request that comes after an answer whose calls were refused.

The model is told so in items that answer its calls, each in the form that its kind of call has; one
that has none cannot be told. Also what else a request is made of: the items of an answer as they
are sent back, and which of them are the client's calls. The counterpart is
`openai_responses_splices.py`, which puts rounds into later requests. Invariant: every call that
waits for a result gets exactly one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentstate.dialects.base import Round
from agentstate.dialects.lenient import Unreadable, as_list, as_object, as_text, read_exact
from agentstate.dialects.openai_responses_items import NAMED_CALLS, is_call, runs_upstream
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest

Items = list[dict[str, JSON]]  # of a response

# Of a request, what says how its answer is to be sent, which is for us to read here.
_STREAMING = frozenset(("stream", "stream_options"))

# What is given back to a call, by the call's type; see `answer_call`.
_RESULT_KINDS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "mcp_approval_request": "mcp_approval_response",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
# As the type of an item says it; a screenshot cannot say that something was refused.
RESULTS = frozenset((*_RESULT_KINDS.values(), "computer_call_output", "tool_search_output"))
# An id of these says that the thought before it is known; others need theirs.
_FREE_OF_ID = frozenset(
    ("message", "function_call", "custom_tool_call", "shell_call", "apply_patch_call")
)


def go_on(request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
    """Return the request that comes after a round; see `base.CallsTools`.

    A conversation holds what was asked and answered already: only the results are new to it.
    """
    answer = read_items(asked.answer)
    told = list_told(answer, asked)
    before: list[JSON] = []
    if request.get("conversation") is None:
        before = [*list_input(request), *as_input(answer, request)]
    body = {key: value for key, value in request.items() if key not in _STREAMING}
    body["input"] = [*before, *told]
    if "tool_choice" in body:
        body["tool_choice"] = _unforced(body["tool_choice"])
    return body


# --- what the model is told -----------------------------------------------------------------------


def list_told(answer: Items, asked: Round) -> list[JSON]:
    """Return what the model is told about the calls of an answer, in their order.

    Raises:
        BadRequest: a call has no form for it, or is waited for and was not refused.
    """
    told: list[JSON] = []
    for position, item in own_calls(answer):
        if position not in asked.told:
            raise BadRequest(
                f"The call of {name_of(item)!r} beside the refused ones has no result, so the "
                "model cannot be asked to go on."
            )
        told.append(answer_call(item, asked.told[position]))
    if asked.observation:
        told.append({"role": "user", "content": f"Observation: {asked.observation}"})
    return told


def answer_call(item: dict[str, JSON], text: str) -> dict[str, JSON]:
    """Return the item that tells the model that a call of it was refused.

    Raises:
        BadRequest: this kind of call has no form for it, or the call has no id.
    """
    kind = as_text(item.get("type")) or ""
    result = _RESULT_KINDS.get(kind)
    if result is None:
        raise BadRequest(
            f"The result of a {kind} has no form that says that it was refused, so the model "
            "cannot be told."
        )
    call_id = as_text(item.get("id" if kind == "mcp_approval_request" else "call_id"))
    if call_id is None:
        raise BadRequest(
            f"The call of {name_of(item)!r} has no id, so no result can be given to it."
        )
    told: dict[str, JSON] = {"type": result, "call_id": call_id, "output": text}
    match kind:
        case "mcp_approval_request":
            return {
                "type": result, "approval_request_id": call_id, "approve": False, "reason": text,
            }  # fmt: skip
        case "shell_call":
            outcome: JSON = {"type": "exit", "exit_code": 1}
            told["output"] = [{"stdout": "", "stderr": text, "outcome": outcome}]
        case "apply_patch_call":
            told["status"] = "failed"
    if item.get("caller") is not None:
        told["caller"] = item["caller"]  # a program of the model's, which waits for it
    return told


def _unforced(choice: JSON) -> JSON:
    """Return a tool choice that does not force the call which was just refused."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return {**choice, "mode": "auto"}
    return choice if choice in (None, "none") else "auto"


def as_input(answer: Items, request: Mapping[str, JSON]) -> Items:
    """Return the items of an answer as a request sends them back.

    All of them, as they came; but a thought that was not stored and is not sealed can be read by
    nobody, and the id of an item promises that its thought comes with it (the API's "provided
    without its required 'reasoning' item").
    """
    if request.get("store") is not False:
        return list(answer)
    kept = [
        item
        for item in answer
        if kind_of(item) != "reasoning" or as_text(item.get("encrypted_content"))
    ]
    return kept if len(kept) == len(answer) else [without_id(item) for item in kept]


def without_id(item: dict[str, JSON]) -> dict[str, JSON]:
    """Return an item without its id, where it may be without."""
    if kind_of(item) not in _FREE_OF_ID:
        return item
    return {key: value for key, value in item.items() if key != "id"}


# --- reading --------------------------------------------------------------------------------------


def read_response(answer: bytes) -> dict[str, JSON]:
    """Read an answer on record.

    Raises:
        BadRequest: it cannot be read.
    """
    try:
        return as_object(read_exact(answer))
    except Unreadable as error:
        raise BadRequest("The answer on record cannot be read.") from error


def read_items(answer: bytes) -> Items:
    """Read the items of an answer on record; raises as `read_response`."""
    return [item for item in as_list(read_response(answer).get("output")) if isinstance(item, dict)]


def list_input(body: Mapping[str, JSON]) -> list[JSON]:
    """Return the input as items; a text stands for a message of the user's."""
    given = body.get("input")
    if isinstance(given, str) and given:
        return [{"role": "user", "content": given}]
    return list(as_list(given))


def kind_of(item: dict[str, JSON]) -> str:
    """Return the type of an item; two may be left out."""
    kind = as_text(item.get("type"))
    if kind is not None:
        return kind
    return "message" if "role" in item else "item_reference" if "id" in item else ""


def _all_calls(items: Items) -> Iterator[tuple[int, dict[str, JSON]]]:
    """Yield (position, item) of every call, as the gate numbers them."""
    return enumerate(item for item in items if is_call(kind_of(item)))


def own_calls(items: Items) -> Iterator[tuple[int, dict[str, JSON]]]:
    """Yield those that are the client's to run."""
    return ((at, item) for at, item in _all_calls(items) if not runs_upstream(item))


def refused_calls(answer: Items, asked: Round) -> list[tuple[int, dict[str, JSON], str]]:
    """Return (position, item, what is told) of the calls that were refused."""
    return [(at, item, asked.told[at]) for at, item in own_calls(answer) if at in asked.told]


def name_of(item: dict[str, JSON]) -> str:
    """Return the name of the tool that a call is of."""
    kind = kind_of(item)
    return (as_text(item.get("name")) or "") if kind in NAMED_CALLS else kind
