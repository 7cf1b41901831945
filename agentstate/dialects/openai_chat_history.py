"""The requests of chat: which tools they offer, and what the model is told about refused calls.

`go_on` makes the request that follows a refusal; `spliced` puts into later requests of an agent
what it has not seen of the conversation. The model then finds its own messages as it sent them,
every call answered. Invariants: what the agent sent is never changed in place, and nothing is put
in unless there is one place where it belongs.
Source: OpenAI's OpenAPI document of August 2026, schemas CreateChatCompletionRequest and
ChatCompletionRequestMessage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentstate.dialects.base import Ask, Round, Splice, Tool
from agentstate.dialects.lenient import Unreadable, as_list, as_object, as_text, read
from agentstate.dialects.openai_chat_calls import CallWalk, Piece, read_body
from agentstate.dialects.openai_chat_reading import choice_index, text_of
from agentstate.dialects.openai_fields import read_choices
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest

OBSERVATION = "Observation: "  # how frameworks without native tools tell a result

# Types of tools whose calls come back to the caller; "builtin_function" is Moonshot's, and some
# leave the type out. All others are the provider's own and run there: Groq's browser_search and
# code_interpreter, Z.ai's web_search and retrieval, a server's by MCP.
# Source: console.groq.com/docs/tool-use/built-in-tools, November 2026.
_FUNCTION_TYPES = ("function", "builtin_function", None)


def tools(ask: Ask) -> tuple[Tool, ...]:
    """Return the tools a request offers; see `base.CallsTools`."""
    found: list[Tool] = []
    for tool in as_list(ask.body.get("tools")):
        if isinstance(tool, dict):
            found += _tools_of(tool)
    for function in as_list(ask.body.get("functions")):
        found += _function(as_object(function))
    if isinstance(ask.body.get("web_search_options"), dict):
        found.append(Tool("web_search", None, runs_upstream=True))
    return tuple(found)


def go_on(request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
    """Return the request that follows a round; see `base.CallsTools`.

    A `tool_choice` that forces a call becomes "auto": the model would have to make the one that was
    refused once more.
    """
    messages = request.get("messages")
    if not isinstance(messages, list):
        raise BadRequest("The request has no list of `messages` that could go on.")
    if read_choices(request.get("n")) > 1:
        raise BadRequest(
            "The request asks for several choices (`n`), and a conversation goes on from one.",
            param="n",
        )
    new = {key: value for key, value in request.items() if key not in ("stream", "stream_options")}
    new["messages"] = [*messages, *_round_messages(asked)]
    if "tool_choice" in new:
        new["tool_choice"] = _unforced(new["tool_choice"])
    if "function_call" in new:
        new["function_call"] = _unforced(new["function_call"])
    return new


def spliced(body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
    """Put what the agent has not seen back into a later request; see `base.CallsTools`."""
    try:
        return _spliced(body, splice)
    except (BadRequest, RecursionError):
        return None  # what cannot be read, or compared, has no place


def read_message(answer: bytes) -> dict[str, JSON]:
    """Return the message of an answer's first choice.

    Raises:
        BadRequest: it has none.
    """
    choices = as_list(read_body(answer).get("choices"))
    entries = [entry for entry, choice in enumerate(choices) if isinstance(choice, dict)]
    if not entries:
        raise BadRequest("The answer has no choice to go on from.")
    first = min(entries, key=lambda at: choice_index(as_object(choices[at]).get("index"), at))
    return {"role": "assistant", **as_object(as_object(choices[first]).get("message"))}


# --- offered tools --------------------------------------------------------------------------------


def _tools_of(tool: dict[str, JSON]) -> Iterator[Tool]:
    kind = tool.get("type")
    if kind in _FUNCTION_TYPES:
        # Some take the form of the Responses API, with name and parameters one level up.
        yield from _function(as_object(tool.get("function")) or tool)
    elif kind == "custom":
        name = as_text(as_object(tool.get("custom")).get("name")) or as_text(tool.get("name"))
        if name is not None:
            yield Tool(name, None, runs_upstream=False)
    elif kind == "mcp" and (label := as_text(tool.get("server_label"))) is not None:
        yield Tool(label, None, runs_upstream=True)
        for name in filter(None, map(as_text, as_list(tool.get("allowed_tools")))):
            yield Tool(f"{label}.{name}", None, runs_upstream=True)
    elif (name := as_text(kind)) is not None:
        yield Tool(name, None, runs_upstream=True)


def _function(function: dict[str, JSON]) -> Iterator[Tool]:
    name = as_text(function.get("name"))
    if name is not None:
        schema = function.get("parameters")
        yield Tool(name, schema if isinstance(schema, dict) else None, runs_upstream=False)


def _unforced(choice: JSON) -> JSON:
    """Return a tool choice under which the model may answer without a call."""
    if choice is None or choice in ("none", "auto"):
        return choice
    allowed = as_object(as_object(choice).get("allowed_tools"))
    if allowed:
        return {**as_object(choice), "allowed_tools": {**allowed, "mode": "auto"}}
    return "auto"


# --- putting back what was not seen ---------------------------------------------------------------


def _spliced(body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
    messages = as_list(body.get("messages"))
    before = as_list(splice.request.get("messages"))
    delivered = read_message(splice.delivered)
    at = _find_after(messages, before, delivered)
    if at is None:
        at = _find_by_ids(messages, before, delivered)
    if at is None:
        return None
    heard = as_object(messages[at])
    if not splice.rounds:
        # Another text is the agent's own, or the one that stands.
        if splice.follows is None or _text(heard).strip() != _text(delivered).strip():
            return None
        kept = {key: heard[key] for key in heard if key != "refusal"}
        said: JSON = {**kept, "content": read_message(splice.follows).get("content")}
        return {**body, "messages": [*messages[:at], said, *messages[at + 1 :]]}
    *earlier, last = splice.rounds
    seen = [item for each in earlier for item in _round_messages(each)]
    if splice.follows is None:
        seen += _completed(heard, last, is_joined=bool(earlier))
    else:
        seen += _round_messages(last)
        seen.append(_as_the_model_said(heard, read_message(splice.follows)))
    return {**body, "messages": [*messages[:at], *seen, *messages[at + 1 :]]}


# --- what the model said and was told -------------------------------------------------------------


def _round_messages(asked: Round) -> list[JSON]:
    """Return the model's message, each of its calls with an id, and what it is told of them."""
    message = read_message(asked.answer)
    calls = _calls_of(message)
    if not calls and not asked.observation:
        raise BadRequest("The answer calls no tool, so there is nothing to tell the model.")
    missing = [call.position for call in calls if call.position not in asked.told]
    if missing:
        raise BadRequest(f"The tool call {missing[0]} of the answer was not refused.")
    return [_with_ids(message), *_results(calls, asked)]


def _calls_of(message: dict[str, JSON]) -> list[Piece]:
    return CallWalk().take({"choices": [{"message": message}]}, "message")


def _id_of(call: Piece) -> str:
    return call.builder.call_id or f"call_{call.position}"


def _with_id(call: Piece) -> JSON:
    return call.fields if call.builder.call_id else {**call.fields, "id": _id_of(call)}


def _with_ids(message: dict[str, JSON]) -> JSON:
    """Return a message in which every call can be answered."""
    by_item = {call.item: call for call in _calls_of(message) if call.key == "tool_calls"}
    if not by_item:  # some send an empty list, which not all of them take back
        return {key: message[key] for key in message if key != "tool_calls"}
    if all(call.builder.call_id for call in by_item.values()):
        return message
    calls = [
        _with_id(by_item[item]) if item in by_item else call
        for item, call in enumerate(as_list(message["tool_calls"]))
    ]
    return {**message, "tool_calls": calls}


def _results(calls: Iterable[Piece], asked: Round) -> Iterator[JSON]:
    for call in calls:
        told = asked.told.get(call.position)
        if told is None:
            continue
        if call.builder.is_legacy:
            yield {"role": "function", "name": call.builder.name, "content": told}
        else:
            yield {"role": "tool", "tool_call_id": _id_of(call), "content": told}
    if asked.observation:
        yield {"role": "user", "content": OBSERVATION + asked.observation}


def _completed(heard: dict[str, JSON], last: Round, *, is_joined: bool) -> list[JSON]:
    """Return the agent's message with the refused calls between its own, and their results.

    `is_joined`: its text begins with that of earlier rounds.
    """
    said = read_message(last.answer)
    calls = _calls_of(said)
    refused = [call for call in calls if call.position in last.told]
    others = [call for call in calls if call.position not in last.told]
    message = {**heard}
    if is_joined:
        message["content"] = said.get("content")
    merged: list[JSON] = []
    waiting = [call for call in refused if not call.builder.is_legacy]
    for own in as_list(heard.get("tool_calls")):
        if others and (not others[0].builder.call_id or _has_id(own, others[0].builder.call_id)):
            position = others.pop(0).position
            merged += [_with_id(call) for call in waiting if call.position < position]
            waiting = [call for call in waiting if call.position > position]
        merged.append(own)
    merged += map(_with_id, waiting)
    if merged:
        message["tool_calls"] = merged
    for call in refused:
        if call.builder.is_legacy:
            message["function_call"] = call.fields
    return [message, *_results(refused, last)]


def _has_id(call: JSON, call_id: str) -> bool:
    return as_object(call).get("id") == call_id


def _as_the_model_said(heard: dict[str, JSON], said: dict[str, JSON]) -> JSON:
    """Return the model's message with the calls as the agent has them: their results are of these,
    by the ids in them, and arguments may have been edited."""
    own: dict[str, JSON] = {
        key: heard[key] for key in ("tool_calls", "function_call") if heard.get(key)
    }
    return {key: said[key] for key in said if key not in ("tool_calls", "function_call")} | own


# --- finding the place ----------------------------------------------------------------------------


def _find_after(messages: list[JSON], before: list[JSON], delivered: dict[str, JSON]) -> int | None:
    """Return where `delivered` stands after all that was before it; None = it does not."""
    at = len(before)
    if len(messages) <= at or not _is_delivered(messages[at], delivered):
        return None
    if not all(_is_same(ours, theirs) for ours, theirs in zip(before, messages, strict=False)):
        return None
    return at


def _find_by_ids(
    messages: list[JSON], before: list[JSON], delivered: dict[str, JSON]
) -> int | None:
    """Return the one place that has the calls of `delivered` by their ids; None = there is none.

    What is right before it must be what it answered: some models give the ids of one conversation
    to the calls of another.
    """
    calls = _calls_of(delivered)
    if not before or not calls or any(call.builder.call_id is None for call in calls):
        return None
    places = [
        at
        for at in range(1, len(messages))
        if _has_calls(messages[at], calls) and _is_same(before[-1], messages[at - 1])
    ]
    if len(places) != 1:
        return None
    prompts = [_last_prompt(before), _last_prompt(messages[: places[0]])]
    if None not in prompts and not _is_same(*prompts):
        return None
    return places[0]


def _last_prompt(messages: list[JSON]) -> JSON:
    return next((each for each in reversed(messages) if _role(each) == "user"), None)


def _is_delivered(message: JSON, delivered: dict[str, JSON]) -> bool:
    """Return whether an agent's message is an answer it got. Agents drop fields and add others."""
    return (
        _has_calls(message, _calls_of(delivered))
        and _text(as_object(message)).strip() == _text(delivered).strip()
    )


def _has_calls(message: JSON, calls: Sequence[Piece]) -> bool:
    if _role(message) != "assistant":
        return False
    own = _calls_of(as_object(message))
    return len(own) == len(calls) and all(map(_is_same_call, own, calls))


def _is_same_call(own: Piece, call: Piece) -> bool:
    ours, theirs = own.builder, call.builder
    return (
        ours.name == theirs.name
        and (theirs.call_id is None or ours.call_id == theirs.call_id)
        and (
            ours.arguments == theirs.arguments
            or _meaning(ours.arguments) == _meaning(theirs.arguments)
        )
    )


def _meaning(arguments: str) -> JSON:
    """Return what is equal where agents wrote the same JSON in their own way: 1.50 as 1.5."""
    try:
        return read(arguments.encode("utf-8", "surrogatepass"))
    except Unreadable:
        return arguments


def _is_same(before: JSON, now: JSON) -> bool:
    """Return whether an item of a list is still the same, as far as it says anything.

    The content of a tool's result does not count: an agent that was started again has run its tools
    again, and goes on from the recorded answer all the same (DESIGN section 5, pinned).
    """
    return before == now or _gist(as_object(before)) == _gist(as_object(now))


def _gist(message: dict[str, JSON]) -> tuple[JSON, ...]:
    role = message.get("role")
    calls: list[JSON] = [
        [call.builder.call_id, call.builder.name, call.builder.arguments]
        for call in _calls_of(message)
    ]
    if role in ("tool", "function"):
        return role, message.get("tool_call_id"), message.get("name")
    content = message.get("content")
    if isinstance(content, list):
        parts = [as_object(part) for part in content]
        if not all(part.get("type") == "text" for part in parts):
            # Marks for the cache wander from call to call.
            return role, [_without(part, "cache_control") for part in parts], calls
    return role, _text(message), calls


def _without(part: dict[str, JSON], key: str) -> JSON:
    return {name: part[name] for name in part if name != key}


def _role(message: JSON) -> JSON:
    return as_object(message).get("role")


def _text(message: dict[str, JSON]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else text_of(content)
