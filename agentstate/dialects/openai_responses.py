"""OpenAI Responses, `POST /v1/responses`, and what is called compatible with it.

The dialect: requests are checked only as far as the proxy needs them; the rest is put together from
`openai_responses_reading.py` and `openai_responses_items.py` (answers, whole or streamed),
`openai_responses_forms.py` (the other form of a recorded answer), `openai_errors.py`; what the gate
needs: `openai_responses_calls.py`, `_joins.py`, `_rounds.py` and `_splices.py`; and translation:
`openai_responses_requests.py` and `openai_responses_answers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from agentstate.dialects import (
    openai_errors,
    openai_responses_answers,
    openai_responses_calls,
    openai_responses_chain,
    openai_responses_joins,
    openai_responses_requests,
    openai_responses_rounds,
    openai_responses_splices,
    openai_responses_texts,
)
from agentstate.dialects.base import Ask, ErrorFacts, Round, Splice, Tool
from agentstate.dialects.lenient import Unreadable, as_object, as_text, name_type, read_exact
from agentstate.dialects.neutral import AnswerHead, Asked, Ending, Receiver, Written
from agentstate.dialects.openai_fields import UNCOUNTED, read_model, read_object, read_stream
from agentstate.dialects.openai_responses_forms import body_from_events, events_from_body
from agentstate.dialects.openai_responses_reading import (
    ResponsesAssembler,
    error_of,
    read_answer,
    render_error_event,
)
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.errors import AgentStateError, BadRequest
from agentstate.wire import sse
from agentstate.wire.sse import Frame

# Unlike in chat, `store` counts: it says whether later calls can refer to this one.
_UNCOUNTED = UNCOUNTED - {"store"}

# What a request can go on from instead of, or besides, its own input.
_CONTEXTS = ("previous_response_id", "conversation", "prompt")

# Items that hold what a tool of the client's gave back, with the fields that say it.
_RESULTS: dict[str, tuple[str, ...]] = {
    "function_call_output": ("output",),
    "custom_tool_call_output": ("output",),
    "computer_call_output": ("output",),
    "local_shell_call_output": ("output",),
    "shell_call_output": ("output",),
    "apply_patch_call_output": ("status", "output"),
}


class OpenAIResponses:
    """The Responses dialect; see `base.Dialect` for what each method promises."""

    def __init__(self) -> None:
        self.name = "openai_responses"
        self.paths: tuple[str, ...] = ("/responses",)
        self.provider = "openai"
        self.counted_headers: tuple[bytes, ...] = ()
        self.request_headers: tuple[tuple[bytes, bytes], ...] = ()
        self.list_key = "input"
        self.shared_keys: tuple[str, ...] = ("instructions", "tools", "text")
        self.heartbeat = sse.comment(b"held")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape of a request and split it."""
        body = read_object(body, '{"model": ..., "input": ...}')
        messages = _read_input(body)
        return Ask(
            model=_read_model(body),
            streams=read_stream(body),
            messages=messages,
            envelope={
                key: value
                for key, value in body.items()
                # An input that has no items still tells two requests apart: null, [], not there.
                if key not in _UNCOUNTED and not (key == self.list_key and messages)
            },
            body=body,
            goes_on_from=_read_context(body),
            has_hidden_part=any(body.get(key) is not None for key in _CONTEXTS),
            passes_through=body.get("background") is True,
        )

    def link(self, body: Mapping[str, JSON]) -> str | None:
        """Return the response that a request goes on from."""
        return openai_responses_chain.link(body)

    def is_made_here(self, answer_id: str) -> bool:
        """Say whether a response's id was made here."""
        return openai_responses_answers.is_made_here(answer_id)

    def has_more_hidden(self, body: Mapping[str, JSON]) -> bool:
        """Say whether a request names a conversation or a prompt."""
        return openai_responses_chain.has_more_hidden(body)

    def with_link(
        self, body: Mapping[str, JSON], request: Mapping[str, JSON], answer: bytes
    ) -> dict[str, JSON]:
        """Write out the request before this one, and its answer."""
        return openai_responses_chain.with_link(body, request, answer)

    def tool_result_blank(self, message: JSON) -> JSON | None:
        """Leave out what a tool gave back."""
        if not isinstance(message, dict) or (fields := _result_fields(message)) is None:
            return None
        return {key: value for key, value in message.items() if key not in fields}

    def tool_results(self, message: JSON) -> Sequence[tuple[str, JSON]]:
        """Return the one result of an output item. A patch that tells no more than whether it was
        applied has its status for content."""
        if not isinstance(message, dict) or (fields := _result_fields(message)) is None:
            return ()
        call_id = as_text(message.get("call_id")) or as_text(message.get("id")) or ""
        content: JSON = message.get("output")
        if len(fields) > 1:
            content = {key: message[key] for key in fields if key in message}
        return ((call_id, content),)

    def masked(self, message: JSON, mask: Callable[[str], str]) -> JSON | None:
        """Apply `mask` to the text of a system or developer message."""
        if not isinstance(message, dict) or message.get("role") not in ("system", "developer"):
            return None
        content = message.get("content")
        if isinstance(content, str):
            return {**message, "content": mask(content)}
        if isinstance(content, list):
            return {**message, "content": [_mask_part(part, mask) for part in content]}
        return {**message}

    def mask_envelope(
        self, envelope: dict[str, JSON], mask: Callable[[str], str]
    ) -> dict[str, JSON] | None:
        """Apply `mask` to the instructions."""
        instructions = envelope.get("instructions")
        if not isinstance(instructions, str):
            return None
        return {**envelope, "instructions": mask(instructions)}

    def assembler(self, choices: int = 1) -> ResponsesAssembler:
        """Return a fresh assembler; a response has one choice."""
        return ResponsesAssembler()

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer that was not streamed."""
        return read_answer(body)

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Make the stream form. Its last event always has the usage."""
        return events_from_body(body)

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Make the non-streaming form."""
        return body_from_events(frames)

    def done_frame(self) -> bytes:
        """Return nothing: the event that completes the response is the last one."""
        return b""

    def error_body(self, error: AgentStateError) -> bytes:
        """Render an error of ours as a JSON body."""
        return openai_errors.error_body(error)

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as the first event of a stream; its assembler knows the number
        of a later one."""
        return render_error_event(error, 0)

    def read_error(self, body: bytes) -> ErrorFacts | None:
        """Read an upstream's error, from an event as well."""
        try:
            return openai_errors.facts_of(error_of(read_exact(body)))
        except Unreadable:
            return None

    def mend_error_body(self, status: int, body: bytes) -> bytes | None:
        """Make an upstream's error body readable; None = it is."""
        return openai_errors.mend_error_body(status, body)

    def request_path(self, model: str, *, streams: bool) -> tuple[str, str]:
        """Return the path of every request."""
        return f"/v1{self.paths[0]}", ""

    def read_request(self, body: Mapping[str, JSON]) -> Asked:
        """Read a request into neutral form."""
        return openai_responses_requests.read_request(body)

    def write_request(self, asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
        """Write a request from neutral form."""
        return openai_responses_requests.write_request(asked, receiver)

    def ending(self, answer: Answer) -> Ending:
        """Say why an answer ended."""
        return openai_responses_answers.ending(answer)

    def write_answer(self, answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
        """Write a whole answer from neutral form."""
        return openai_responses_answers.write_answer(answer, ending, head)

    def answer_writer(self, head: AnswerHead) -> openai_responses_answers.ResponsesWriter:
        """Return a writer for one stream."""
        return openai_responses_answers.ResponsesWriter(head)

    def write_error(self, facts: ErrorFacts, status: int) -> bytes:
        """Write an upstream's error, whatever form it came in."""
        return openai_errors.write_error(facts, status)

    def tools(self, ask: Ask) -> tuple[Tool, ...]:
        """Return the tools a request offers; of a namespace those that are in it."""
        return openai_responses_calls.list_tools(ask.body)

    def changed_body(self, body: bytes, changes: Changes) -> bytes:
        """Return an answer with other arguments, or without some calls."""
        return openai_responses_calls.changed_body(body, changes)

    def changed_events(self, frames: Sequence[Frame], changes: Changes) -> bytes:
        """Return a whole stream, changed likewise."""
        return openai_responses_calls.changed_events(frames, changes)

    def with_text(self, body: bytes, choice: int, text: str) -> bytes:
        """Return an answer that says something else."""
        return openai_responses_texts.with_text(body, choice, text)

    def joined_body(self, text: str, second: bytes) -> bytes:
        """Return an answer with a message before it that has the text of an earlier round."""
        return openai_responses_joins.joined_body(text, second)

    def joined_events(self, first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
        """Return a stream that goes on as another one, under the id it began with."""
        return openai_responses_joins.joined_events(first, second)

    def go_on(self, request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
        """Return the request that comes after a round."""
        return openai_responses_rounds.go_on(request, asked)

    def spliced(self, body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
        """Put what the agent has not seen back into a later request; an equal body = the upstream
        has it all, None = it has no place."""
        return openai_responses_splices.spliced(body, splice)


def _read_model(body: dict[str, JSON]) -> str:
    if body.get("model") is None and _has_context(body):
        return ""  # the upstream knows it from there
    return read_model(body)


def _read_input(body: dict[str, JSON]) -> tuple[JSON, ...]:
    """Return the input as items; a text stands for a message of the user's."""
    given = body.get("input")
    if isinstance(given, str) and given:
        return ({"role": "user", "content": given},)
    if given in (None, "", []) and _has_context(body):
        return ()
    if not isinstance(given, list) or not given:
        found = "an empty list" if given == [] else name_type(given)
        raise BadRequest(
            f"`input` must be a text or a list of at least one item; found {found}. Send what the "
            'model is asked, for example "hi".',
            param="input",
        )
    for position, item in enumerate(given):
        if not isinstance(item, dict):
            raise BadRequest(
                f"`input[{position}]` must be an object; found {name_type(item)}. Send "
                '{"role": ..., "content": ...} or another item.',
                param=f"input[{position}]",
            )
    return tuple(given)


def _has_context(body: dict[str, JSON]) -> bool:
    return any(body.get(key) is not None for key in _CONTEXTS)


def _read_context(body: dict[str, JSON]) -> str | None:
    conversation = body.get("conversation")
    named = as_text(conversation) or as_text(as_object(conversation).get("id"))
    return as_text(body.get("previous_response_id")) or named


def _result_fields(message: dict[str, JSON]) -> tuple[str, ...] | None:
    kind = message.get("type")
    return _RESULTS.get(kind) if isinstance(kind, str) else None


def _mask_part(part: JSON, mask: Callable[[str], str]) -> JSON:
    if isinstance(part, dict) and isinstance(text := part.get("text"), str):
        return {**part, "text": mask(text)}
    return part
