"""Whose results messages have: the calls of an answer, compared with what stands in a later
request. Pure; the counterpart that reads requests is `tool_results.py`.

Calls are compared by id, name and arguments, since none of these is enough: models repeat ids or
leave them out, frameworks make new ones, and agents write arguments anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Dialect
from agentstate.dialects.lenient import as_object, as_text
from agentstate.dialects.neutral import Called, Result, Text, Turn
from agentstate.ground.approvals import Place
from agentstate.ground.calls import TEXT_KIND, Calling
from agentstate.ground.canonical import JSON, canonical
from agentstate.ground.chat import ToolCall
from agentstate.ground.errors import BadRequest
from agentstate.steps.said import MODELS, calm, only_text, read_turns

WAY_MAX = 64  # messages after a request that may hold its results; items of Responses are many
END_MAX = 16  # messages at the end of a request that are read

OBSERVATION = "Observation:"  # how frameworks without native tools tell what one gave
# Kinds of which it is certain that the agent runs them; of others the provider may have.
RUN_BY_AGENT = ("function", "custom", TEXT_KIND)

CallName = tuple[int, str, Place]  # (answer id, "text" or "tool_call", place): one call for good


def name_of(calling: Calling, choice: int, call: ToolCall) -> CallName:
    """Return what names a call for good."""
    kind = "text" if call.kind == TEXT_KIND else "tool_call"
    return calling.answer_id, kind, (choice, call.position)


# --- whose results ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OneCall:
    """One call of a family."""

    name: CallName
    call: ToolCall
    edited: str | None  # the arguments that a person gave it; None = as the model sent them
    wants_result: bool  # it is worth a long search: the agent runs it, and nobody refused it

    def has(self, arguments: str) -> bool:
        """Say whether these, which are calm, are its arguments: the model's or the edited ones."""
        return arguments == calm(self.call.arguments) or (
            self.edited is not None and arguments == calm(self.edited)
        )


@dataclass(frozen=True, slots=True)
class Family:
    """All the calls that one answer and its rounds brought to an agent."""

    root_id: int
    index: int
    place: int
    dialect: str
    members: tuple[Calling, ...]
    calls: tuple[OneCall, ...]


def families_of(callings: Iterable[Calling]) -> list[Family]:
    """Put answers together with their rounds."""
    by_root: dict[int, list[Calling]] = {}
    for calling in callings:
        by_root.setdefault(calling.root_id, []).append(calling)
    return [
        Family(
            root_id,
            members[0].index,
            members[0].place,
            members[0].dialect,
            tuple(members),
            tuple(_calls_of(members)),
        )
        for root_id, members in by_root.items()
    ]


def _calls_of(members: Iterable[Calling]) -> Iterator[OneCall]:
    for calling in members:
        for choice, call in calling.all_calls():
            approval = calling.approval_of(choice, call)
            decision = None if approval is None else approval.decision
            is_refused = decision is not None and not decision.is_approved
            yield OneCall(
                name_of(calling, choice, call),
                call,
                None if decision is None else decision.arguments,
                wants_result=call.kind in RUN_BY_AGENT and not is_refused,
            )


@dataclass(slots=True)
class Way:
    """Messages below a place, as far as they may hold results."""

    top: int  # the place
    dialect: Dialect
    wanted: int  # results that there can be at most
    places: tuple[int, ...] = ()
    messages: tuple[JSON, ...] = ()
    results: int = 0
    is_past_answer: bool = False  # somebody else has spoken since the model did

    @property
    def last(self) -> int:
        """The place it has come to."""
        return self.places[-1] if self.places else self.top

    @property
    def is_full(self) -> bool:
        """Whether nothing more can come on it."""
        return self.results >= self.wanted or len(self.messages) >= WAY_MAX

    def with_message(self, place: int, message: JSON) -> Way | None:
        """Return the way one message on; None = it is of the model's next answer."""
        results = len(self.dialect.tool_results(message))
        is_models = _is_models(message, has_results=results > 0)
        begins_at = 0 if self.top else 1  # what was asked as a bare text comes again first
        if len(self.messages) == begins_at and not is_models:
            return None  # the answer was not taken up
        if is_models and self.is_past_answer and not _is_bare_call(message):
            return None
        return Way(
            self.top,
            self.dialect,
            self.wanted,
            (*self.places, place),
            (*self.messages, message),
            self.results + results,
            self.is_past_answer or not is_models,
        )


def _is_models(message: JSON, *, has_results: bool) -> bool:
    fields = as_object(message)
    role = fields.get("role")
    # An item of Responses has a type and no role; Gemini leaves the user's role out.
    return role in MODELS or (role is None and "type" in fields and not has_results)


def _is_bare_call(message: JSON) -> bool:
    """Say whether it is an item of Responses that calls: some agents put each result after its
    call."""
    return (as_text(as_object(message).get("type")) or "").endswith("_call")


@dataclass(slots=True)
class End:
    """The end of a request, from the last answer in it on."""

    index: int  # of its step
    dialect: str
    next: int  # the place to be read next; 0 = it is all there
    messages: list[tuple[int, JSON]] = field(default_factory=list)  # (place, message), in order
    has_answer: bool = False

    def take(self, message: JSON, above: int) -> None:
        """Take in the message before."""
        dialect = dialect_by_name(self.dialect)
        has_results = dialect is not None and bool(dialect.tool_results(message))
        is_models = _is_models(message, has_results=has_results)
        is_over = self.has_answer and not is_models
        if not is_over:
            self.messages.insert(0, (self.next, message))
        self.has_answer |= is_models
        self.next = 0 if is_over or len(self.messages) >= END_MAX else above


def whose_end(
    end: End, families: Sequence[Family]
) -> tuple[Family, list[tuple[int, CallName, JSON]]] | None:
    """Return the last family that made just the calls an end begins with, and its results."""
    dialect = dialect_by_name(end.dialect)
    if dialect is None or not end.has_answer:
        return None
    places, messages = zip(*end.messages, strict=True)
    turns = read_turns(dialect, messages)
    called = [item for turn in turns for item in turn.items if isinstance(item, Called)]
    for family in reversed([one for one in families if one.dialect == end.dialect]):
        match = match_calls(called, family)
        if called and match.is_whole and match.exact == len(called):
            way = Way(0, dialect, 0, places, messages)
            return family, list(results_on(way, turns, family, match.calls))
    return None


# --- reading ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Match:
    """How the calls of a model's message are those of a family."""

    calls: dict[str, list[CallName]] = field(default_factory=dict)  # by the id in the history
    is_whole: bool = True  # all calls of the message are
    exact: int = 0  # how many have the same arguments as well


def whose(
    way: Way, turns: Sequence[Turn], families: Sequence[Family]
) -> Sequence[tuple[Family, Mapping[str, list[CallName]]]]:
    """Return whose results a way has: of several answers those that its message repeats best."""
    called = [item for turn in turns for item in turn.items if isinstance(item, Called)]
    matches = [(family, match_calls(called, family)) for family in families]
    if not called:
        # Calls without a neutral form go by their ids; so does what a text spells by being alone.
        ids = {call_id for each in way.messages for call_id, _ in way.dialect.tool_results(each)}
        known = [one for one in families if ids & {call.call.call_id for call in one.calls}]
        alone = families if len(families) == 1 else ()
        return [(family, {}) for family in known or alone]
    whole = [(family, match) for family, match in matches if match.is_whole]
    if not whole and len(matches) == 1:
        whole = matches  # there is nobody else of whom it could be
    best = max((match.exact for _, match in whole), default=0)
    return [(family, match.calls) for family, match in whole if match.exact == best]


def are_plain(way: Way, families: Sequence[Family]) -> bool:
    """Say whether ids alone tell what is whose, as they mostly do: then little has to be read."""
    if len(families) != 1:
        return False
    known = [call.call.call_id for call in families[0].calls]
    sent = [call_id for each in way.messages for call_id, _ in way.dialect.tool_results(each)]
    is_certain = len(set(known)) == len(known) and len(set(sent)) == len(sent)
    return is_certain and bool(sent) and all(call_id and call_id in known for call_id in sent)


def match_calls(called: Sequence[Called], family: Family) -> Match:
    """Find the calls of a message among those of a family, each once."""
    match = Match()
    left = [call for call in family.calls if call.call.kind != TEXT_KIND]
    for item in called:
        arguments = calm(item.arguments)
        named = [call for call in left if call.call.name == item.name]
        mine = [call for call in named if call.call.call_id == item.call_id]
        others = [call for call in named if not call.call.call_id]
        # Some frameworks make new ids.
        fits = mine or others or [call for call in named if call.has(arguments)]
        exact = [call for call in fits if call.has(arguments)]
        if not fits:
            match.is_whole = False
            continue
        chosen = (exact or fits)[0]
        left.remove(chosen)
        match.exact += bool(exact)
        match.calls.setdefault(item.call_id, []).append(chosen.name)
    return match


def results_on(
    way: Way, turns: Sequence[Turn], family: Family, calls: Mapping[str, list[CallName]]
) -> Iterator[tuple[int, CallName, JSON]]:
    """Yield (place, call, content) of the results on a way."""
    raw = [
        (place, call_id, content)
        for place, message in zip(way.places, way.messages, strict=True)
        for call_id, content in way.dialect.tool_results(message)
    ]
    # The neutral form gives ids to those that were sent without.
    read = [item for turn in turns for item in turn.items if isinstance(item, Result)]
    ids = [item.call_id for item in read] if len(read) == len(raw) else [each[1] for each in raw]
    by_id: dict[str, list[CallName]] = {}  # '' = those without one, in a form that tells no more
    for call in family.calls:
        if call.call.kind != TEXT_KIND:
            by_id.setdefault(call.call.call_id or "", []).append(call.name)
    named = {call_id: list(names) for call_id, names in (calls or by_id).items()}
    for (place, _, content), call_id in zip(raw, ids, strict=True):
        # Calls that have one id are told in their order.
        if names := named.get(call_id) or by_id.get(call_id):
            yield place, names[0], content
            del names[: len(names) > 1]
    spelled = [call.name for call in family.calls if call.call.kind == TEXT_KIND]
    if spelled and not raw:
        yield from ((place, spelled[0], text) for place, text in _observed(way))


def _observed(way: Way) -> Iterator[tuple[int, str]]:
    """Yield what a text says that a tool gave: the first one, for one call is made at a time."""
    for place, message in zip(way.places, way.messages, strict=True):
        turns = read_turns(way.dialect, (message,))
        said = "".join(item.text for turn in turns for item in turn.items if isinstance(item, Text))
        _, mark, text = said.partition(OBSERVATION)
        if mark:
            yield place, text.strip()
            return


def told(content: JSON) -> tuple[JSON, bool]:
    """Return a result's content, and whether it says that it is an error."""
    if isinstance(content, dict) and content.keys() == {"is_error", "content"}:
        return content["content"], content["is_error"] is True
    return content, False


def begins(way: Way, text: str | None) -> bool:
    """Say whether a way begins with a message of this text: what was asked as one goes on so."""
    return text is not None and only_text(read_turns(way.dialect, way.messages[:1])) == text


def is_same(one: JSON, other: JSON) -> bool:
    """Say whether two results are the same; what is too deep to be compared is not."""
    try:
        return canonical(one) == canonical(other)
    except BadRequest:
        return False
