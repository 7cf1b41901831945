"""Anthropic Messages, `POST /v1/messages`.

The dialect: requests are checked only as far as the proxy needs them; the rest is put together from
`anthropic_messages_reading.py` (answers, whole or streamed), `anthropic_messages_forms.py` (the
other form of a recorded answer), `anthropic_messages_calls.py` and `anthropic_messages_turns.py`
(what the gate does to answers and to conversations), `anthropic_messages_requests.py` and
`anthropic_messages_answers.py` (translation) and `anthropic_errors.py`. The system text is a
field of its own; a message in the middle of the conversation may be of the system too. Tool results
are blocks of the user's messages, several in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from agentstate.dialects import (
    anthropic_errors,
    anthropic_messages_answers,
    anthropic_messages_calls,
    anthropic_messages_requests,
    anthropic_messages_texts,
    anthropic_messages_turns,
)
from agentstate.dialects.anthropic_messages_forms import (
    DONE_FRAME,
    body_from_events,
    events_from_body,
)
from agentstate.dialects.anthropic_messages_reading import MessagesAssembler, read_answer
from agentstate.dialects.base import Ask, ErrorFacts, Round, Splice, Tool
from agentstate.dialects.lenient import as_list, as_text, name_type
from agentstate.dialects.neutral import (
    AnswerHead,
    AnswerWriter,
    Asked,
    Ending,
    Receiver,
    Written,
)
from agentstate.dialects.openai_fields import counted, read_model, read_object, read_stream
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.errors import AgentStateError, BadRequest
from agentstate.wire.sse import Frame

# What a tool's result says besides which call it is of. A tool that is run again may fail where it
# did not before, so that it did is a part of its outcome.
_OUTCOME_KEYS = frozenset(("content", "is_error"))


class AnthropicMessages:
    """The Messages dialect; see `base.Dialect`, `base.CallsTools` and `neutral.Translates` for what
    each promises."""

    heartbeat = anthropic_messages_calls.HEARTBEAT
    request_headers: tuple[tuple[bytes, bytes], ...] = anthropic_messages_requests.REQUEST_HEADERS

    def __init__(
        self,
        name: str = "anthropic_messages",
        *,
        provider: str = "anthropic",
        paths: tuple[str, ...] = ("/messages",),
    ) -> None:
        self.name = name
        self.paths = paths
        self.provider = provider
        # They switch on what an answer may hold and how it is written.
        self.counted_headers: tuple[bytes, ...] = (b"anthropic-beta", b"anthropic-version")
        self.list_key = "messages"
        self.shared_keys: tuple[str, ...] = ("system", "tools")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape of a request and split it."""
        body = read_object(body, '{"model": ..., "max_tokens": ..., "messages": [...]}')
        return Ask(
            model=read_model(body),
            streams=read_stream(body),
            messages=_read_messages(body),
            envelope=counted(body, self.list_key),
            body=body,
            goes_on_from=_read_thread(body),
        )

    def tool_result_blank(self, message: JSON) -> JSON | None:
        """Leave out what the tools in a message gave; their calls' ids and other blocks stay."""
        if not isinstance(message, dict) or not _list_results(message):
            return None
        blocks: list[JSON] = [
            {key: value for key, value in block.items() if key not in _OUTCOME_KEYS}
            if _is_result(block) and isinstance(block, dict)
            else block
            for block in as_list(message["content"])
        ]
        return {**message, "content": blocks}

    def tool_results(self, message: JSON) -> Sequence[tuple[str, JSON]]:
        """Return the result of each tool in a message; one that says it failed says so in it."""
        if not isinstance(message, dict):
            return ()
        return tuple(
            (as_text(block.get("tool_use_id")) or "", _outcome(block))
            for block in _list_results(message)
        )

    def masked(self, message: JSON, mask: Callable[[str], str]) -> JSON | None:
        """Apply `mask` to the text of a system message in the middle of the conversation."""
        if not isinstance(message, dict) or message.get("role") != "system":
            return None
        return {**message, "content": _mask_text(message.get("content"), mask)}

    def mask_envelope(
        self, envelope: dict[str, JSON], mask: Callable[[str], str]
    ) -> dict[str, JSON] | None:
        """Apply `mask` to the system text: a string, or a list of text blocks."""
        if "system" not in envelope:
            return None
        return {**envelope, "system": _mask_text(envelope["system"], mask)}

    def assembler(self, choices: int = 1) -> MessagesAssembler:
        """Return a fresh assembler; there is never more than one choice."""
        return MessagesAssembler()

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer that was not streamed."""
        return read_answer(body)

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Make the stream form. Its usage is always there: the SDKs read it without asking."""
        return events_from_body(body)

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Make the non-streaming form: blocks put together from their pieces."""
        return body_from_events(frames)

    def done_frame(self) -> bytes:
        """Return the frame that ends a stream."""
        return DONE_FRAME

    def error_body(self, error: AgentStateError) -> bytes:
        """Render an error of ours as a JSON body."""
        return anthropic_errors.error_body(error)

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as an event."""
        return anthropic_errors.error_event(error)

    def read_error(self, body: bytes) -> ErrorFacts | None:
        """Read an upstream's error."""
        return anthropic_errors.read_error(body)

    def mend_error_body(self, status: int, body: bytes) -> bytes | None:
        """Make an upstream's error body readable; None = it is."""
        return anthropic_errors.mend_error_body(status, body)

    def tools(self, ask: Ask) -> tuple[Tool, ...]:
        """Return the tools a request offers, those that Anthropic runs included."""
        return anthropic_messages_calls.list_tools(ask)

    def changed_body(self, body: bytes, changes: Changes) -> bytes:
        """Return an answer with its calls changed."""
        return anthropic_messages_calls.changed_body(body, changes)

    def changed_events(self, frames: Sequence[Frame], changes: Changes) -> bytes:
        """Return a stream with its calls changed."""
        return anthropic_messages_calls.changed_events(frames, changes)

    def with_text(self, body: bytes, choice: int, text: str) -> bytes:
        """Return an answer that says something else."""
        return anthropic_messages_texts.with_text(body, choice, text)

    def joined_body(self, text: str, second: bytes) -> bytes:
        """Return an answer with an earlier text before its own."""
        return anthropic_messages_calls.joined_body(text, second)

    def joined_events(self, first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
        """Return one stream made of two."""
        return anthropic_messages_calls.joined_events(first, second)

    def go_on(self, request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
        """Return the request that tells the model of refused calls."""
        return anthropic_messages_turns.go_on(request, asked)

    def spliced(self, body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
        """Put what the agent has not seen back into a later request."""
        return anthropic_messages_turns.spliced(body, splice)

    def request_path(self, model: str, *, streams: bool) -> tuple[str, str]:
        """Return where requests go; whether to stream is said in their body."""
        return "/v1/messages", ""

    def read_request(self, body: Mapping[str, JSON]) -> Asked:
        """Read a request into neutral form."""
        return anthropic_messages_requests.read_request(body)

    def write_request(self, asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
        """Write a request, as the model takes it."""
        return anthropic_messages_requests.write_request(asked, receiver)

    def ending(self, answer: Answer) -> Ending:
        """Say why an answer ended."""
        return anthropic_messages_answers.ending(answer)

    def write_answer(self, answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
        """Write another model's answer as a message."""
        return anthropic_messages_answers.write_answer(answer, ending, head)

    def answer_writer(self, head: AnswerHead) -> AnswerWriter:
        """Return a writer for the events of one."""
        return anthropic_messages_answers.MessagesWriter(head)

    def write_error(self, facts: ErrorFacts, status: int) -> bytes:
        """Write an upstream's error in Anthropic's words."""
        return anthropic_errors.write_error(facts, status)


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


def _read_thread(body: dict[str, JSON]) -> str | None:
    """Return the answer that a request goes on from where the vendor keeps the conversation.

    Source: Anthropic's message threads (beta of 2026-08-12), which their tool runner uses.
    """
    thread = body.get("thread")
    return as_text(thread.get("previous_message_id")) if isinstance(thread, dict) else None


def _is_result(block: JSON) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _list_results(message: dict[str, JSON]) -> list[dict[str, JSON]]:
    blocks = as_list(message.get("content"))
    return [block for block in blocks if isinstance(block, dict) and _is_result(block)]


def _outcome(block: dict[str, JSON]) -> JSON:
    content = block.get("content")
    return {"is_error": True, "content": content} if block.get("is_error") is True else content


def _mask_text(content: JSON, mask: Callable[[str], str]) -> JSON:
    if isinstance(content, str):
        return mask(content)
    if not isinstance(content, list):
        return content
    return [_mask_block(block, mask) for block in content]


def _mask_block(block: JSON, mask: Callable[[str], str]) -> JSON:
    if isinstance(block, dict) and isinstance(text := block.get("text"), str):
        return {**block, "text": mask(text)}
    return block
