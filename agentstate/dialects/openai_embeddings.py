"""OpenAI's embeddings, `POST /v1/embeddings`: texts in, vectors out, never as a stream.

The invariant: an answer is complete only if it holds vectors, every one of them with something in
it. What the vectors are is the upstream's affair; their bytes are the record.
Source: schema CreateEmbeddingResponse in OpenAI's OpenAPI document of August 2026.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentstate.dialects import openai_errors
from agentstate.dialects.base import Ask, Mark
from agentstate.dialects.lenient import (
    Unreadable,
    as_object,
    as_text,
    name_type,
    read,
    read_answer_body,
)
from agentstate.dialects.openai_chat_reading import read_usage
from agentstate.dialects.openai_fields import counted, read_model, read_object
from agentstate.dialects.openai_plain import OpenAIPlain
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.wire.sse import Frame


class OpenAIEmbeddings(OpenAIPlain):
    """The dialect of embeddings; see `base.Dialect` for what each method promises."""

    name = "openai_embeddings"
    paths: tuple[str, ...] = ("/embeddings",)
    shared_keys: tuple[str, ...] = ("input",)  # may be megabytes, and is asked again in every run

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape of a request. `stream` is no field of it and changes nothing."""
        body = read_object(body, '{"model": ..., "input": ...}')
        return Ask(
            model=read_model(body),
            streams=False,
            messages=(),
            envelope=counted(body),
            body=body,
        )

    def assembler(self, choices: int = 1) -> NoStream:
        """Return what refuses any stream."""
        return NoStream()

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer. It has no choices: there is no text to show."""
        try:
            value = read_answer_body(body, read)
        except Unreadable as error:
            return Answer(fault=str(error))
        fault = _find_fault(value)
        return Answer(
            response_id=as_text(value.get("id")),
            model=as_text(value.get("model")),
            usage=read_usage(value.get("usage")),
            fault=fault,
            is_complete=fault is None,
        )

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Return none: no request asks for a stream (`Ask.streams` is never true)."""
        return []

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Return an empty body: no stream is ever recorded."""
        return b""

    def done_frame(self) -> bytes:
        """Return b'': there are no streams."""
        return b""


class NoStream:
    """Takes in what an upstream streams where it should not, and finds no answer in it."""

    __slots__ = ("_fault",)

    def __init__(self) -> None:
        self._fault = "no body was sent"

    def feed(self, frame: Frame) -> Mark:
        """Refuse an event, with its own words if it is an error."""
        if frame.data is None:
            return Mark.PREFACE
        self._fault = "a stream of events where one JSON body was expected"
        try:
            value = as_object(read(frame.data))
        except Unreadable:
            value = {}
        if openai_errors.is_error(value):
            self._fault = openai_errors.tell_fault(value)
        return Mark.ERROR

    def finish(self, clean_end: bool) -> Answer:
        """Return what is no answer."""
        return Answer(fault=self._fault)

    def snapshot(self) -> Answer:
        """Return what is no answer."""
        return self.finish(clean_end=True)

    def call_names(self) -> list[tuple[int, int, str]]:
        """Return none."""
        return []

    def new_text(self) -> list[tuple[int, str]]:
        """Return none."""
        return []


def _find_fault(value: dict[str, JSON]) -> str | None:
    """Say what makes it no answer; None = nothing."""
    if openai_errors.is_error(value):
        return openai_errors.tell_fault(value)
    data = value.get("data")
    if not isinstance(data, list) or not data:
        return f"`data` is {'an empty list' if data == [] else name_type(data)}"
    for position, item in enumerate(data):
        embedding = as_object(item).get("embedding")
        # Numbers, or base64 of them.
        if not isinstance(embedding, list | str) or not embedding:
            return f"data[{position}] has no embedding"
    return None
