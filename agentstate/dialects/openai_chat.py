"""OpenAI chat completions, `POST /v1/chat/completions`, and all that is called compatible with it.

The dialect: requests are checked only as far as the proxy needs them; the rest is put together from
`openai_chat_reading.py` (answers, whole or streamed), `openai_chat_forms.py` (the other form of a
recorded answer), `openai_chat_calls.py`, `openai_chat_joins.py` and `openai_chat_history.py` (what
the gate needs), `openai_chat_requests.py` and `openai_chat_answers.py` (translation) and
`openai_errors.py`. A variant builds on `OpenAIChat` and says what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from agentstate.dialects import (
    openai_chat_answers,
    openai_chat_calls,
    openai_chat_history,
    openai_chat_joins,
    openai_chat_requests,
    openai_chat_texts,
    openai_errors,
)
from agentstate.dialects.base import Ask, ErrorFacts, Round, Splice, Tool
from agentstate.dialects.lenient import as_object, name_type
from agentstate.dialects.neutral import AnswerHead, Asked, Ending, Receiver, Written
from agentstate.dialects.openai_chat_answers import ChatAnswerWriter
from agentstate.dialects.openai_chat_forms import DONE_FRAME, body_from_events, events_from_body
from agentstate.dialects.openai_chat_reading import ChatAssembler, read_answer
from agentstate.dialects.openai_fields import (
    counted,
    read_choices,
    read_model,
    read_object,
    read_stream,
)
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.errors import AgentStateError, BadRequest
from agentstate.wire import sse
from agentstate.wire.sse import Frame


class OpenAIChat:
    """The chat dialect; what each method promises is in `base.Dialect`, `base.CallsTools` and
    `neutral.Translates`."""

    request_headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(
        self,
        name: str = "openai_chat",
        *,
        provider: str = "openai",
        paths: tuple[str, ...] = ("/chat/completions",),
        counted_headers: tuple[bytes, ...] = (),
    ) -> None:
        self.name = name
        self.paths = paths
        self.provider = provider
        self.counted_headers = counted_headers
        self.list_key = "messages"
        self.shared_keys: tuple[str, ...] = ("tools", "functions", "response_format", "prediction")
        self.heartbeat = sse.comment(b"held")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape of a request and split it."""
        body = read_object(body, '{"model": ..., "messages": [...]}')
        return Ask(
            model=read_model(body),
            streams=read_stream(body),
            messages=_read_messages(body),
            envelope=counted(body, self.list_key),
            body=body,
            choices=read_choices(body.get("n")),
            wants_usage=as_object(body.get("stream_options")).get("include_usage") is True,
        )

    def tool_result_blank(self, message: JSON) -> JSON | None:
        """Leave out the content of a tool's message."""
        if isinstance(message, dict) and message.get("role") in ("tool", "function"):
            return {key: value for key, value in message.items() if key != "content"}
        return None

    def tool_results(self, message: JSON) -> Sequence[tuple[str, JSON]]:
        """Return the one result of a tool's message; the legacy form has a name and no id."""
        if not isinstance(message, dict) or message.get("role") not in ("tool", "function"):
            return ()
        call_id = message.get("tool_call_id")
        return ((call_id if isinstance(call_id, str) else "", message.get("content")),)

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
        """Return None: the system text is a message."""
        return None

    def assembler(self, choices: int = 1) -> ChatAssembler:
        """Return a fresh assembler."""
        return ChatAssembler(choices)

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer that was not streamed."""
        return read_answer(body)

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Make the stream form: per choice its role, texts and calls; then the finish reasons."""
        return events_from_body(body, include_usage)

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Make the non-streaming form: deltas merged by choice, the last usage."""
        return body_from_events(frames)

    def done_frame(self) -> bytes:
        """Return the frame that ends a stream."""
        return DONE_FRAME

    def error_body(self, error: AgentStateError) -> bytes:
        """Render an error of ours as a JSON body."""
        return openai_errors.error_body(error)

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as an event."""
        return openai_errors.error_event(error)

    def read_error(self, body: bytes) -> ErrorFacts | None:
        """Read an upstream's error."""
        return openai_errors.read_error(body)

    def mend_error_body(self, status: int, body: bytes) -> bytes | None:
        """Make an upstream's error body readable; None = it is."""
        return openai_errors.mend_error_body(status, body)

    def tools(self, ask: Ask) -> tuple[Tool, ...]:
        """Return functions, custom tools, and the provider's own by their type."""
        return openai_chat_history.tools(ask)

    def changed_body(self, body: bytes, changes: Changes) -> bytes:
        """Change the calls of an answer that was not streamed."""
        return openai_chat_calls.changed_body(body, changes)

    def changed_events(self, frames: Sequence[Frame], changes: Changes) -> bytes:
        """Change the calls of a stream."""
        return openai_chat_calls.changed_events(frames, changes)

    def with_text(self, body: bytes, choice: int, text: str) -> bytes:
        """Return an answer that says something else."""
        return openai_chat_texts.with_text(body, choice, text)

    def joined_body(self, text: str, second: bytes) -> bytes:
        """Put a text before the first choice's own."""
        return openai_chat_joins.joined_body(text, second)

    def joined_events(self, first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
        """Let a stream go on as another one, under the first one's id."""
        return openai_chat_joins.joined_events(first, second)

    def go_on(self, request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
        """Add the model's message and a tool's message for each of its calls."""
        return openai_chat_history.go_on(request, asked)

    def spliced(self, body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
        """Put back what an agent has not seen."""
        return openai_chat_history.spliced(body, splice)

    def request_path(self, model: str, *, streams: bool) -> tuple[str, str]:
        """Return the one path there is."""
        return "/v1/chat/completions", ""

    def read_request(self, body: Mapping[str, JSON]) -> Asked:
        """Read a request into neutral form."""
        return openai_chat_requests.read_request(body)

    def write_request(self, asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
        """Write a request for OpenAI, or for what is compatible with it."""
        return openai_chat_requests.write_request(asked, receiver)

    def ending(self, answer: Answer) -> Ending:
        """Say why an answer ended, by the first choice."""
        return openai_chat_answers.ending(answer)

    def write_answer(self, answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
        """Write an answer that is not streamed."""
        return openai_chat_answers.write_answer(answer, ending, head)

    def answer_writer(self, head: AnswerHead) -> ChatAnswerWriter:
        """Return a writer for one stream."""
        return ChatAnswerWriter(head)

    def write_error(self, facts: ErrorFacts, status: int) -> bytes:
        """Write an upstream's error."""
        return openai_errors.write_error(facts, status)


def _mask_part(part: JSON, mask: Callable[[str], str]) -> JSON:
    if isinstance(part, dict) and isinstance(text := part.get("text"), str):
        return {**part, "text": mask(text)}
    return part


def _read_messages(body: dict[str, JSON]) -> tuple[JSON, ...]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        found = "an empty list" if messages == [] else name_type(messages)
        raise BadRequest(
            f"`messages` must be a list of at least one message; found {found}. Send the "
            'conversation, for example [{"role": "user", "content": "hi"}].',
            param="messages",
        )
    for position, message in enumerate(messages):
        if not isinstance(message, dict):
            raise BadRequest(
                f"`messages[{position}]` must be an object; found {name_type(message)}. Send "
                '{"role": ..., "content": ...}.',
                param=f"messages[{position}]",
            )
    return tuple(messages)
