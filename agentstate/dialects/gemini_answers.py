"""Answers in Gemini's own form, written from the neutral one; and why one in this form ended.

What other models think is shown to those who asked for thoughts only: many clients take the first
part for the answer. A call carries Google's stand-in for a signature, since the conversation may go
on with one of Google's models, which refuse a call without. The counterparts are
`gemini_reading.py`, which reads answers, and `gemini_forms.py`, by which a stream that is written
here equals the body that is.
Source: ai.google.dev/api/generate-content (GenerateContentResponse) and the types of the
`google-genai` package 3.6, November 2026.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from itertools import groupby

from agentstate.dialects.anthropic_messages_forms import NO_JSON_KEY
from agentstate.dialects.call_arguments import object_of
from agentstate.dialects.gemini_contents import NO_SIGNATURE_BYTES, camel
from agentstate.dialects.lenient import join_text
from agentstate.dialects.neutral import AnswerHead, Ending, Written, made_id
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire import sse

# Reasons that mean the answer was kept back or cut off for what it says, blocked prompts included.
# OTHER and LANGUAGE are among them: what they end is no whole answer.
_FILTERED = frozenset(
    ("SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII",
     "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_OTHER", "MODEL_ARMOR",
     "ESCALATION", "JAILBREAK", "PUP_LIMITED_DISABLED")
)  # fmt: skip
# Reasons that mean the model failed at a call, or at all.
_FAILED = frozenset(
    ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS",
     "MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE", "NO_IMAGE")
)  # fmt: skip
_CUT = frozenset(("MAX_TOKENS", "CONTINUATION"))
# Google's word for an end that calls something is the one for any other.
_REASONS: dict[Ending, str] = {
    "stop": "STOP",
    "stop_sequence": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "filtered": "SAFETY",
}


def ending(answer: Answer) -> Ending:
    """Say why an answer ended."""
    reason = answer.finish_reason
    if reason in _CUT:
        return "length"
    if reason in _FILTERED:
        return "filtered"
    return "tool_calls" if answer.tool_calls else "stop"


def model_fault(answer: Answer) -> str | None:
    """Say how the model failed; None = it did not."""
    failed = (
        f"candidate {choice.index} ended with {choice.finish_reason}"
        for choice in answer.choices
        if choice.finish_reason in _FAILED
    )
    return next(failed, None)


def write_answer(answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
    """Write a whole answer."""
    shows_thoughts = _shows_thoughts(head)
    candidates: list[JSON] = []
    for choice in _choices_of(answer):
        said = choice.text + (choice.refusal or "")
        parts: list[JSON] = []
        if shows_thoughts and choice.reasoning:
            parts.append({"text": choice.reasoning, "thought": True})
        if said:
            parts.append({"text": said})
        parts += _write_calls(choice, head)
        candidates.append(_candidate(choice.index, parts, _reason(choice, ending)))
    is_lost = not shows_thoughts and any(choice.reasoning for choice in answer.choices)
    body = _chunk(candidates, head, answer.usage)
    return Written(encode(body), ("reasoning",) if is_lost else ())


class GeminiWriter:
    """Writes one stream; see `neutral.AnswerWriter`. Calls come at the end, whole, as Google's do.

    A surrogate pair that was cut in two is put together: each half would be escaped in a chunk of
    its own, and few clients join those.
    """

    __slots__ = ("_halves", "_head", "_shows_thoughts", "_speaking")

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._shows_thoughts = _shows_thoughts(head)
        self._halves: dict[tuple[int, bool], str] = {}  # by (choice, is it thought)
        self._speaking: dict[int, bool] = {}  # by choice: whether its last part was a thought

    def begin(self) -> bytes:
        """Return b'': a stream begins with what is said."""
        return b""

    def write(self, pieces: Sequence[Piece]) -> bytes:
        """Return a chunk for each run of pieces of one kind."""
        told = [piece for piece in pieces if piece.kind != "call"]
        frames: list[bytes] = []
        for (choice, is_thought), run in groupby(told, _run_of):
            text = self._halves.pop((choice, is_thought), "") + "".join(piece.text for piece in run)
            text = join_text([text])
            if text and "\ud800" <= text[-1] <= "\udbff":
                self._halves[choice, is_thought] = text[-1]
                text = text[:-1]
            frames.append(self._write_text(choice, text, is_thought))
        return b"".join(frames)

    def end(self, answer: Answer, ending: Ending) -> bytes:
        """Return the last chunk: calls, reasons and usage."""
        rest = [
            self._write_text(choice, text, is_thought)
            for (choice, is_thought), text in sorted(self._halves.items())
        ]
        candidates: list[JSON] = []
        for choice in _choices_of(answer):
            parts = _write_calls(choice, self._head)
            if not parts and self._speaking.get(choice.index) is False:
                parts = [{"text": ""}]  # as Google ends a text
            candidates.append(_candidate(choice.index, parts, _reason(choice, ending)))
        last = _chunk(candidates, self._head, answer.usage)
        return b"".join((*rest, sse.encode(encode(last))))

    def _write_text(self, choice: int, text: str, is_thought: bool) -> bytes:
        if not text or (is_thought and not self._shows_thoughts):
            return b""
        self._speaking[choice] = is_thought
        part: dict[str, JSON] = {"text": text}
        if is_thought:
            part["thought"] = True
        return sse.encode(encode(_chunk([_candidate(choice, [part], None)], self._head, None)))


def _run_of(piece: Piece) -> tuple[int, bool]:
    return piece.choice, piece.kind == "reasoning"


def _shows_thoughts(head: AnswerHead) -> bool:
    config = camel(camel(head.body).get("generationConfig"))
    return camel(config.get("thinkingConfig")).get("includeThoughts") is True


def _choices_of(answer: Answer) -> Sequence[Choice]:
    return answer.choices or (Choice(0),)


def _reason(choice: Choice, ending: Ending) -> str:
    """Return the reason of one choice. The ending is the first one's; of others nothing is known
    here but that they ended."""
    return _REASONS[ending] if choice.index == 0 else _REASONS["stop"]


def _write_calls(choice: Choice, head: AnswerHead) -> list[JSON]:
    parts: list[JSON] = []
    for call in choice.tool_calls:
        if call.runs_upstream:
            continue
        call_id = call.call_id or made_id(head.seed, choice.index, call.position)
        function: dict[str, JSON] = {"id": call_id, "name": call.name}
        function["args"] = _read_arguments(call)
        part: dict[str, JSON] = {"functionCall": function}
        if not parts:
            part["thoughtSignature"] = NO_SIGNATURE_BYTES
        parts.append(part)
    return parts


def _read_arguments(call: ToolCall) -> JSON:
    """Return the object that arguments are; or one that holds them, where a model was cut off."""
    found = object_of(call.arguments)
    return {NO_JSON_KEY: call.arguments} if found is None else found


def _candidate(index: int, parts: list[JSON], reason: str | None) -> JSON:
    content: dict[str, JSON] = {"parts": parts, "role": "model"} if parts else {"role": "model"}
    candidate: dict[str, JSON] = {"content": content}
    if reason is not None:
        candidate["finishReason"] = reason
    candidate["index"] = index
    return candidate


def _chunk(candidates: list[JSON], head: AnswerHead, usage: Usage | None) -> dict[str, JSON]:
    chunk: dict[str, JSON] = {"candidates": candidates}
    if usage is not None:
        chunk["usageMetadata"] = _write_usage(usage)
    chunk["modelVersion"] = head.model
    digest = hashlib.sha256(head.seed.encode()).digest()
    chunk["responseId"] = urlsafe_b64encode(digest[:16]).rstrip(b"=").decode("ascii")
    return chunk


def _write_usage(usage: Usage) -> dict[str, JSON]:
    """Write token counts; thoughts are counted apart, and counts of nothing left out."""
    counts: dict[str, JSON] = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": max(usage.output_tokens - usage.reasoning_tokens, 0),
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
    if usage.cached_tokens:
        counts["cachedContentTokenCount"] = usage.cached_tokens
    if usage.reasoning_tokens:
        counts["thoughtsTokenCount"] = usage.reasoning_tokens
    return counts
