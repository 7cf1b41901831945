"""Gemini's own form, `POST /v1beta/models/{model}:generateContent` and `:streamGenerateContent`.

Under /v1 as well, where Google's newer clients ask for it.

The dialect: the rest is put together from `gemini_reading.py` (answers, whole or streamed),
`gemini_forms.py` (the other form of a recorded answer), `gemini_calls.py` and `gemini_turns.py`
(what the gate does to answers and to conversations), `gemini_requests.py` and `gemini_answers.py`
(translation) and `gemini_errors.py`.

Model and stream stand in the path; so a dialect is bound to one by `at`. A stream is meant with
`?alt=sse` only: without it Google streams one JSON list, which passes through unrecorded. Keys are
read in both spellings that Google takes, camelCase and snake_case.
Source: ai.google.dev/api/generate-content, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import parse_qsl, unquote

from agentstate.dialects import (
    gemini_answers,
    gemini_calls,
    gemini_errors,
    gemini_forms,
    gemini_requests,
    gemini_texts,
    gemini_turns,
)
from agentstate.dialects.base import Ask, ErrorFacts, Round, Splice, Tool
from agentstate.dialects.gemini_reading import (
    RESULT_NAMES,
    GeminiAssembler,
    function_of,
    read_answer,
)
from agentstate.dialects.lenient import as_list, as_object, name_type
from agentstate.dialects.neutral import AnswerHead, AnswerWriter, Asked, Ending, Receiver, Written
from agentstate.dialects.openai_fields import read_choices, read_object
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.errors import AgentStateError, BadRequest
from agentstate.wire.sse import Frame

# Fields that never change an answer: those of DESIGN section 5, as far as Google has them.
UNCOUNTED = frozenset(("labels", "serviceTier", "service_tier", "store"))

_PATH = re.compile(r"((?:/v1(?:alpha|beta)\d*)?/models/([^:]+)):(g|streamG)enerateContent")
_SYSTEM_KEYS = ("systemInstruction", "system_instruction")
_CACHE_KEYS = ("cachedContent", "cached_content")


class Gemini:
    """The dialect; see `base.Dialect`, `ReadsPath` and `CallsTools`, and `neutral.Translates`, for
    what each promises."""

    heartbeat = gemini_calls.HEARTBEAT
    name = "gemini"
    paths: tuple[str, ...] = (
        "/v1beta/models/{model}:generateContent",
        "/v1beta/models/{model}:streamGenerateContent",
        "/models/{model}:generateContent",
        "/models/{model}:streamGenerateContent",
    )
    provider = "gemini"
    counted_headers: tuple[bytes, ...] = ()
    request_headers: tuple[tuple[bytes, bytes], ...] = ()
    list_key = "contents"
    shared_keys: tuple[str, ...] = ("tools", *_SYSTEM_KEYS)

    def __init__(self, model: str = "", *, streams: bool = False, counted_path: str = "") -> None:
        """Bind it to what a path says; bare it reads everything but requests."""
        self._model = model
        self._streams = streams
        self._counted_path = counted_path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    def at(self, path: str, query: str) -> Gemini | None:
        """Return the dialect of a path, or None if it is another's."""
        found = _PATH.fullmatch(path)
        if found is None:
            return None
        streams = found[3] == "streamG"
        if streams and ("alt", "sse") not in parse_qsl(query):
            return None
        return Gemini(unquote(found[2]), streams=streams, counted_path=found[1])

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape of a request and split it."""
        body = read_object(body, '{"contents": [...]}')
        config = as_object(body.get("generationConfig", body.get("generation_config")))
        return Ask(
            model=self._model,
            streams=self._streams,
            messages=_read_contents(body),
            envelope={
                key: value
                for key, value in body.items()
                if key not in UNCOUNTED and key != self.list_key
            },
            body=body,
            choices=read_choices(config.get("candidateCount", config.get("candidate_count"))),
            wants_usage=True,  # it is part of every answer
            has_hidden_part=any(body.get(key) is not None for key in _CACHE_KEYS),
            counted_path=self._counted_path,
        )

    def tool_result_blank(self, message: JSON) -> JSON | None:
        """Leave out what the functions of a message returned."""
        if not self.tool_results(message):
            return None
        parts = [_blank(part) for part in as_list(as_object(message).get("parts"))]
        return {**as_object(message), "parts": parts}

    def tool_results(self, message: JSON) -> Sequence[tuple[str, JSON]]:
        """Return what the functions of a message returned; older models give calls no id."""
        found: list[tuple[str, JSON]] = []
        for part in as_list(as_object(message).get("parts")):
            if (result := function_of(part, *RESULT_NAMES)) is not None:
                call_id = result.get("id")
                content: JSON = {key: value for key, value in result.items() if key not in _NAMES}
                found.append((call_id if isinstance(call_id, str) else "", content))
        return found

    def masked(self, message: JSON, mask: Callable[[str], str]) -> JSON | None:
        """Return None: the system text is beside the contents."""
        return None

    def mask_envelope(
        self, envelope: dict[str, JSON], mask: Callable[[str], str]
    ) -> dict[str, JSON] | None:
        """Apply `mask` to the text of the system instruction."""
        changed = {
            key: _mask_content(envelope[key], mask) for key in _SYSTEM_KEYS if key in envelope
        }
        return {**envelope, **changed} if changed else None

    def assembler(self, choices: int = 1) -> GeminiAssembler:
        """Return a fresh assembler."""
        return GeminiAssembler(choices)

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer that was not streamed."""
        return read_answer(body)

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Make the stream form; usage is part of it, asked for or not."""
        return gemini_forms.events_from_body(body)

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Make the non-streaming form."""
        return gemini_forms.body_from_events(frames)

    def done_frame(self) -> bytes:
        """Return b'': a stream ends by ending."""
        return b""

    def error_body(self, error: AgentStateError) -> bytes:
        """Render an error of ours as a JSON body."""
        return gemini_errors.error_body(error)

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as an event."""
        return gemini_errors.error_event(error)

    def read_error(self, body: bytes) -> ErrorFacts | None:
        """Read an upstream's error."""
        return gemini_errors.read_error(body)

    def mend_error_body(self, status: int, body: bytes) -> bytes | None:
        """Make an upstream's error body readable; None = it is."""
        return gemini_errors.mend_error_body(status, body)

    def tools(self, ask: Ask) -> tuple[Tool, ...]:
        """Return the tools a request offers, those that Google runs included."""
        return gemini_calls.list_tools(ask)

    def changed_body(self, body: bytes, changes: Changes) -> bytes:
        """Return an answer with its calls changed."""
        return gemini_calls.changed_body(body, changes)

    def changed_events(self, frames: Sequence[Frame], changes: Changes) -> bytes:
        """Return a stream with its calls changed."""
        return gemini_calls.changed_events(frames, changes)

    def with_text(self, body: bytes, choice: int, text: str) -> bytes:
        """Return an answer that says something else."""
        return gemini_texts.with_text(body, choice, text)

    def joined_body(self, text: str, second: bytes) -> bytes:
        """Return an answer with an earlier text before its own."""
        return gemini_calls.joined_body(text, second)

    def joined_events(self, first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
        """Return one stream made of two."""
        return gemini_calls.joined_events(first, second)

    def go_on(self, request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
        """Return the request that tells the model of refused calls."""
        return gemini_turns.go_on(request, asked)

    def spliced(self, body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
        """Put what the agent has not seen back into a later request."""
        return gemini_turns.spliced(body, splice)

    def request_path(self, model: str, *, streams: bool) -> tuple[str, str]:
        """Return the path and query of a request for a model."""
        return gemini_requests.request_path(model, streams=streams)

    def read_request(self, body: Mapping[str, JSON]) -> Asked:
        """Read a request that came by the path this is bound to."""
        return gemini_requests.read_request(body, self._model, streams=self._streams)

    def write_request(self, asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
        """Write a request; its model stands in the path."""
        return gemini_requests.write_request(asked, receiver)

    def ending(self, answer: Answer) -> Ending:
        """Say why an answer ended."""
        return gemini_answers.ending(answer)

    def model_fault(self, answer: Answer) -> str | None:
        """Say how the model failed at an answer; None = it did not."""
        return gemini_answers.model_fault(answer)

    def write_answer(self, answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
        """Write an answer that is not streamed."""
        return gemini_answers.write_answer(answer, ending, head)

    def answer_writer(self, head: AnswerHead) -> AnswerWriter:
        """Return a writer for one stream."""
        return gemini_answers.GeminiWriter(head)

    def write_error(self, facts: ErrorFacts, status: int) -> bytes:
        """Write an upstream's error."""
        return gemini_errors.write_error(facts, status)


_NAMES = frozenset(("id", "name"))  # of a function's response: which call it answers


def _blank(part: JSON) -> JSON:
    result = function_of(part, *RESULT_NAMES)
    if result is None:
        return part
    kept: JSON = {key: value for key, value in result.items() if key in _NAMES}
    return {key: kept if key in RESULT_NAMES else value for key, value in as_object(part).items()}


def _mask_content(content: JSON, mask: Callable[[str], str]) -> JSON:
    """Mask a Content's text; Google takes one without parts, and a bare text, too."""
    if isinstance(content, str):
        return mask(content)
    if not isinstance(content, dict):
        return content
    masked = dict(content)
    if isinstance(text := content.get("text"), str):
        masked["text"] = mask(text)
    if isinstance(parts := content.get("parts"), list):
        masked["parts"] = [_mask_content(part, mask) for part in parts]
    elif isinstance(parts, dict):
        masked["parts"] = _mask_content(parts, mask)
    return masked


def _read_contents(body: dict[str, JSON]) -> tuple[JSON, ...]:
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        found = "an empty list" if contents == [] else name_type(contents)
        raise BadRequest(
            f"`contents` must be a list of at least one content; found {found}. Send the "
            'conversation, for example [{"role": "user", "parts": [{"text": "hi"}]}].',
            param="contents",
        )
    for position, content in enumerate(contents):
        if not isinstance(content, dict):
            raise BadRequest(
                f"`contents[{position}]` must be an object; found {name_type(content)}. Send "
                '{"role": ..., "parts": [...]}.',
                param=f"contents[{position}]",
            )
    return tuple(contents)
