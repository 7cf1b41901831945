"""Later requests in the Responses form, of an agent that has not seen all of the conversation.

An agent that never got some calls sends requests without them, and they are put back. What it sends
of an answer is rarely what it got: thoughts are left out, items become references, texts are
merged. So an answer is known again by its text and by the calls that are the client's to run, and
what the agent did send of it goes upstream in the agent's own form.
The counterpart is `openai_responses_rounds.py`, which tells the model. Invariant: nothing is put
anywhere but into the one place where the answer it belongs to stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentstate.dialects.base import Round, Splice
from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.dialects.openai_responses_items import is_call, read_input, runs_upstream
from agentstate.dialects.openai_responses_rounds import (
    RESULTS,
    Items,
    answer_call,
    as_input,
    kind_of,
    list_input,
    list_told,
    name_of,
    own_calls,
    read_items,
    read_response,
    refused_calls,
    without_id,
)
from agentstate.ground.canonical import JSON, canonical, parse
from agentstate.ground.errors import BadRequest

# Made by the model or its provider and no call of the client's: an agent may leave them out.
_QUIET = frozenset(("reasoning", "mcp_list_tools", "program", "program_output", "compaction"))


def spliced(body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
    """Put what the agent has not seen back into a later request; see `base.CallsTools`.

    Where the upstream holds all of it already (it goes on from the last answer by its id, or in the
    same conversation) the body is returned as it is: nothing is missing, unlike where there is no
    place. A body that goes on from an id the agent knows an earlier answer by gets the last one's.
    """
    if splice.rounds:
        chain = _chained(body, splice)
        if chain is not None:
            return chain
    elif splice.follows is None:
        return None
    items, delivered = list_input(body), read_items(splice.delivered)
    found: _Found | None = None
    if _context(body) == _context(splice.request):
        asked = list_input(splice.request)
        if items[: len(asked)] == asked:
            found = _find_after(items, len(asked), delivered)
    if found is None and not _has_refused(items, splice):
        found = _find_calls(items, delivered)
    if found is None or not (splice.rounds or _said(found.own).text == _said(delivered).text):
        return None
    return {**body, "input": _put_in(items, found, body, splice)}


# --- chained --------------------------------------------------------------------------------------


def _chained(body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
    """Return a body that goes on from what was delivered by its id; None = it does not."""
    last = splice.rounds[-1]
    previous = as_text(body.get("previous_response_id"))
    if previous is not None:
        answers = [splice.delivered, *(each.answer for each in splice.rounds)]
        answers += [] if splice.follows is None else [splice.follows]
        ids = [as_text(read_response(answer).get("id")) for answer in answers]
        if previous not in ids or ids[-1] is None:
            return None
        chain = {**body, "previous_response_id": ids[-1]}
        return chain if splice.follows is not None else _with_told(chain, last)
    conversation = _context(body)[1]
    if conversation is None or conversation != _context(splice.request)[1]:
        return None
    delivered = {_call_id(item) for _, item in own_calls(read_items(splice.delivered))}
    results = {_result_id(as_object(item)) for item in list_input(body)}
    if splice.follows is None and delivered & results - {None}:
        return _with_told(dict(body), last)
    return dict(body)


def _with_told(body: dict[str, JSON], last: Round) -> dict[str, JSON]:
    told = [
        answer_call(item, text) for _, item, text in refused_calls(read_items(last.answer), last)
    ]
    return {**body, "input": [*told, *list_input(body)]}


# --- where an answer stands -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """Where in a list of items an answer stands that was delivered."""

    start: int
    end: int  # the first item after it
    own: Items  # the answer's own items, as the agent sent them
    results: list[JSON]  # results that stand among them


def _find_after(items: list[JSON], start: int, delivered: Items) -> _Found | None:
    """Find the answer right after the items that it answers."""
    wanted, seen = _said(delivered), _Said("", ())
    own: Items = []
    results: list[JSON] = []
    end = start
    while seen != wanted:
        item = as_object(items[end]) if end < len(items) else {}
        if own and item.get("type") in RESULTS:
            results.append(item)
        elif _is_answered(item, delivered):
            own.append(item)
            seen = seen.plus(_said([_resolved(item, delivered)]))
        else:
            return None
        end += 1
    while end < len(items) and _is_quiet_of(as_object(items[end]), delivered):
        own.append(as_object(items[end]))
        end += 1
    then = as_object(items[end]) if end < len(items) else {}
    says_more = _is_answered(then, delivered) and not _is_quiet(then)
    # An answer of which nothing is left could stand anywhere.
    return _Found(start, end, own, results) if own and not says_more else None


def _find_calls(items: list[JSON], delivered: Items) -> _Found | None:
    """Find the answer by its calls, each of which must stand in the list exactly once."""
    wanted = _said(delivered).calls
    ids = {call_id for _, call_id, _, _ in wanted}
    places = _list_calls(items, ids, delivered)
    found = tuple(call for said in places.values() for call in said.calls)
    if not wanted or None in ids or found != wanted:
        return None
    start, end = min(places), max(places) + 1
    while start > 0 and _is_part_of(as_object(items[start - 1]), delivered):
        start -= 1
    while end < len(items) and _is_part_of(as_object(items[end]), delivered):
        end += 1
    own: Items = []
    results: list[JSON] = []
    for item in map(as_object, items[start:end]):
        if item.get("type") in RESULTS:
            results.append(item)
        elif _is_answered(item, delivered):
            own.append(item)
        else:
            return None
    return _Found(start, end, own, results)


def _has_refused(items: list[JSON], splice: Splice) -> bool:
    """Say whether a call that was refused stands in the list all the same."""
    refused: set[_Call] = set()
    for each in splice.rounds:
        refused |= {
            call
            for _, item, _ in refused_calls(read_items(each.answer), each)
            for call in _said([item]).calls
        }
    found = _list_calls(items, {call_id for _, call_id, _, _ in refused}, [])
    return any(call in refused for said in found.values() for call in said.calls)


def _list_calls(items: list[JSON], ids: set[str | None], delivered: Items) -> dict[int, _Said]:
    """Return the calls in a list that have one of these ids, by their places."""
    places: dict[int, _Said] = {}
    for place, item in enumerate(map(as_object, items)):
        resolved = _resolved(item, delivered)
        if is_call(kind_of(resolved)) and _call_id(resolved) in ids:
            places[place] = _said([resolved])
    return places


_Call = tuple[str, str | None, str, bytes]  # type, id, name, input


@dataclass(frozen=True, slots=True)
class _Said:
    """What an answer is known by: its text, and the calls that are the client's to run."""

    text: str
    calls: tuple[_Call, ...]

    def plus(self, more: _Said) -> _Said:
        return _Said(self.text + more.text, self.calls + more.calls)


def _said(items: Items) -> _Said:
    texts = (_text(item) for item in items if kind_of(item) == "message")
    calls = (
        (kind_of(item), _call_id(item), name_of(item), _one_form(read_input(item)))
        for _, item in own_calls(items)
    )
    return _Said("".join(texts), tuple(calls))


def _text(message: dict[str, JSON]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = (as_object(part) for part in as_list(content))
    return "".join(
        as_text(part.get("text")) or as_text(part.get("refusal")) or "" for part in parts
    )


def _one_form(arguments: str) -> bytes:
    """Return arguments as what they say; some agents write them anew."""
    raw = arguments.encode("utf-8", "surrogatepass")
    try:
        return canonical(parse(raw))
    except BadRequest:
        return raw


def _is_answered(item: dict[str, JSON], delivered: Items) -> bool:
    """Say whether an item of a request can be part of a model's answer."""
    kind = kind_of(item)
    if kind == "message":
        return item.get("role") == "assistant"
    if kind == "item_reference":
        return _resolved(item, delivered) is not item
    return is_call(kind) or kind in _QUIET


def _is_quiet_of(item: dict[str, JSON], delivered: Items) -> bool:
    """Say whether an item is one of this answer's that neither says nor asks anything."""
    resolved = _resolved(item, delivered)
    return _is_quiet(resolved) and any(_is_same(resolved, each) for each in delivered)


def _is_part_of(item: dict[str, JSON], delivered: Items) -> bool:
    """Say whether an item beside the calls of this answer is of this answer, too."""
    if kind_of(item) == "message" and item.get("role") == "assistant":
        texts = [_text(each) for each in delivered if kind_of(each) == "message"]
        text = _text(item)
        return bool(text) and (text in texts or text == "".join(texts))
    resolved = _resolved(item, delivered)
    return resolved is not item or _is_quiet_of(item, delivered)


def _resolved(item: dict[str, JSON], delivered: Items) -> dict[str, JSON]:
    """Return the item that a reference stands for; itself if it is none, or not of this answer."""
    if kind_of(item) != "item_reference":
        return item
    return next((each for each in delivered if each.get("id") == item.get("id")), item)


def _is_same(item: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Say whether two items of one type are one: by id, or by what a thought is sealed in."""
    if kind_of(item) != kind_of(other):
        return False
    keys = [key for key in ("id", "encrypted_content") if as_text(item.get(key))]
    return any(item[key] == other.get(key) for key in keys)


# --- putting in -----------------------------------------------------------------------------------


def _put_in(
    items: list[JSON], found: _Found, body: Mapping[str, JSON], splice: Splice
) -> list[JSON]:
    """Return the list with the rounds, and what was delivered after them, in its place."""
    whole = items[: found.start]
    if not splice.rounds and splice.follows is not None:
        said = _rewritten(found.own, read_items(splice.delivered), read_items(splice.follows))
        return [*whole, *said, *found.results, *items[found.end :]]
    unseen = splice.rounds if splice.follows is not None else splice.rounds[:-1]
    for each in unseen:
        answer = read_items(each.answer)
        whole += [*as_input(answer, body), *list_told(answer, each)]
    rest = items[found.end :]
    if splice.follows is not None:
        restored = _restored(read_items(splice.follows), found.own, ())
        return [*whole, *restored, *found.results, *rest]
    last = splice.rounds[-1]
    answer = read_items(last.answer)
    refused = refused_calls(answer, last)
    count = next(
        (at for at, item in enumerate(rest) if as_object(item).get("type") not in RESULTS),
        len(rest),
    )
    results = [*found.results, *rest[:count]]
    told = {position: answer_call(item, text) for position, item, text in refused}
    restored = _restored(answer, found.own, tuple(told))
    return [*whole, *restored, *_among(results, answer, told), *rest[count:]]


def _rewritten(own: Items, delivered: Items, follows: Items) -> list[JSON]:
    """Return an answer as the agent sent it, with the text that a person wrote in place of its own.
    An agent may have joined several messages into one, so the first one bears all of it."""
    text = "".join(_text(item) for item in follows if kind_of(item) == "message")
    message: JSON = {"type": "message", "role": "assistant", "content": text}
    waiting = [message] if text else []
    is_message = [kind_of(_resolved(item, delivered)) == "message" for item in own]
    said: list[JSON] = []
    for item, is_text in zip(own, is_message, strict=True):
        if is_text or not (any(is_message) or kind_of(item) in _QUIET):
            said += waiting
            waiting = []
        if not is_text:
            said.append(item)
    return [*said, *waiting]


def _restored(answer: Items, own: Items, refused: Sequence[int]) -> list[JSON]:
    """Return an answer as the agent sent it, with what it never got put back between.

    What it did not send though it got it (a thought, a search of the provider's) stays out.
    """
    left = list(own)
    pairs: list[tuple[dict[str, JSON], dict[str, JSON] | None]] = []  # ours, theirs
    for item in answer:
        theirs = next((each for each in left if _is_counterpart(each, item, answer)), None)
        pairs.append((item, theirs))
        if theirs is not None:
            left.remove(theirs)
    # The texts of several messages, of earlier rounds or of this answer, were sent as one.
    has_merged = any(kind_of(each) == "message" and _text(each) for each in left)
    has_thoughts = all(theirs for item, theirs in pairs if kind_of(item) == "reasoning")
    refused_ones = {id(item) for at, item in own_calls(answer) if at in refused}
    restored: list[JSON] = []
    for item, theirs in pairs:
        if theirs is not None:
            restored.append(theirs)
        elif id(item) in refused_ones or (
            has_merged and kind_of(item) == "message" and _text(item)
        ):
            # The id of an item promises that its thought comes with it.
            restored.append(item if has_thoughts else without_id(item))
    return restored


def _is_counterpart(theirs: dict[str, JSON], item: dict[str, JSON], answer: Items) -> bool:
    """Say whether an item that the agent sent is this one of the answer."""
    resolved = _resolved(theirs, answer)
    if resolved is item:
        return True
    if kind_of(resolved) != kind_of(item):
        return False
    if kind_of(item) == "message":
        return _text(resolved) == _text(item)
    if _is_quiet(item):
        return _is_same(resolved, item)
    # The arguments may have been edited.
    return _call_id(resolved) == _call_id(item) and name_of(resolved) == name_of(item)


def _among(results: list[JSON], answer: Items, told: Mapping[int, dict[str, JSON]]) -> list[JSON]:
    """Return results with what is told of the refused calls, each after the call before it."""
    whole, before = list(results), 0
    for position, item in own_calls(answer):
        if position in told:
            whole.insert(before, told[position])
            before += 1
            continue
        ids = [_result_id(as_object(result)) for result in whole]
        call_id = _call_id(item)
        before = ids.index(call_id) + 1 if call_id is not None and call_id in ids else before
    return whole


# --- reading --------------------------------------------------------------------------------------


def _context(body: Mapping[str, JSON]) -> tuple[str | None, str | None]:
    """Return what the input is only the rest of: an earlier response, and a conversation."""
    conversation = body.get("conversation")
    named = as_text(conversation) or as_text(as_object(conversation).get("id"))
    return as_text(body.get("previous_response_id")), named


def _is_quiet(item: dict[str, JSON]) -> bool:
    return kind_of(item) in _QUIET or runs_upstream(item)


def _call_id(item: dict[str, JSON]) -> str | None:
    return as_text(item.get("call_id")) or as_text(item.get("id"))


def _result_id(item: dict[str, JSON]) -> str | None:
    """Return the id of the call that a result is of."""
    if item.get("type") not in RESULTS:
        return None
    keys = ("call_id", "approval_request_id", "id")
    return next((found for key in keys if (found := as_text(item.get(key)))), None)
