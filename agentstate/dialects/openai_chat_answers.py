"""Answers in OpenAI's chat form, written from the neutral one: whole, or as a stream.

What a caller gets whose call was answered in another form. The counterpart that reads such answers
is `openai_chat_reading.py`; both forms of what is written here are the same answer to it. Reasoning
stands in `reasoning_content`, as DeepSeek and others send it. The one invariant: calls are opened
in the order of their positions, since clients and our own reader count them as they come.
Source: OpenAI's OpenAPI document of August 2026, schemas CreateChatCompletionResponse and
CreateChatCompletionStreamResponse.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentstate.dialects.call_arguments import unwrap_free_text
from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.dialects.neutral import AnswerHead, Ending, Written, made_id
from agentstate.dialects.openai_chat_forms import DONE_FRAME
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire import sse

# Finish reasons that mean more than an end, in lower case: the form's own, Mistral's and Zhipu's,
# and those of other vendors, which gateways let through.
_ENDINGS: dict[str, Ending] = {
    "length": "length", "model_length": "length", "max_tokens": "length",
    "max_output_tokens": "length", "model_context_window_exceeded": "length",
    "content_filter": "filtered", "sensitive": "filtered", "refusal": "filtered",
    "safety": "filtered", "recitation": "filtered", "blocklist": "filtered",
    "prohibited_content": "filtered", "spii": "filtered",
}  # fmt: skip

_KEYS = {"text": "content", "refusal": "refusal", "reasoning": "reasoning_content"}


def ending(answer: Answer) -> Ending:
    """Say why an answer in this form ended."""
    if not answer.choices:
        return "stop"
    found = _ending_of(answer.choices[0])
    return "stop_sequence" if found == "stop" and "stop_sequence" in answer.extra else found


def write_answer(answer: Answer, why: Ending, head: AnswerHead) -> Written[bytes]:
    """Write a whole answer; `why` is the first choice's ending, the others tell their own."""
    caller = _Caller(head)
    body = caller.head("chat.completion")
    dropped: list[str] = []
    choices: list[JSON] = []
    for choice in answer.choices:
        calls = _own_calls(choice)
        if caller.is_legacy and len(calls) > 1:
            dropped.append("tool calls after the first")
        choices.append(
            {
                "index": choice.index,
                "message": _write_message(choice, calls, caller),
                "logprobs": None,
                "finish_reason": _finish_reason(answer, choice, why, caller),
            }
        )
    body["choices"] = choices
    if answer.usage is not None:
        body["usage"] = write_usage(answer.usage)
    return Written(encode(body), tuple(dict.fromkeys(dropped)))


def write_usage(usage: Usage) -> dict[str, JSON]:
    """Write token counts in the chat form."""
    prompt: dict[str, JSON] = {"cached_tokens": usage.cached_tokens, "audio_tokens": 0}
    if usage.cache_write_tokens:
        prompt["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


class ChatAnswerWriter:
    """Writes one stream; see `neutral.AnswerWriter`."""

    __slots__ = ("_caller", "_choices")

    def __init__(self, head: AnswerHead) -> None:
        self._caller = _Caller(head)
        self._choices: dict[int, _ChoiceWriting] = {}

    def begin(self) -> bytes:
        """Return the chunk with the role of the first choice."""
        return b"".join(self._choice(0)[1])

    def write(self, pieces: Sequence[Piece]) -> bytes:
        """Return the chunks of these pieces."""
        frames: list[bytes] = []
        for piece in pieces:
            choice, opening = self._choice(piece.choice)
            frames += opening
            if piece.kind == "call":
                deltas = choice.take(piece)
            else:
                deltas = [{_KEYS[piece.kind]: piece.text}] if piece.text else []
            frames += [self._chunk(piece.choice, delta) for delta in deltas]
        return b"".join(frames)

    def end(self, answer: Answer, why: Ending) -> bytes:
        """Return what is left of the calls, the finish reasons, the usage if it was asked for."""
        frames: list[bytes] = []
        for each in answer.choices:
            choice, opening = self._choice(each.index)
            frames += opening
            frames += [self._chunk(each.index, delta) for delta in choice.finish(each)]
        for each in answer.choices:
            reason = _finish_reason(answer, each, why, self._caller)
            frames.append(self._chunk(each.index, {}, reason))
        if self._caller.wants_usage and answer.usage is not None:
            chunk = self._caller.head("chat.completion.chunk")
            chunk |= {"choices": [], "usage": write_usage(answer.usage)}
            frames.append(sse.encode(encode(chunk)))
        return b"".join((*frames, DONE_FRAME))

    def _choice(self, index: int) -> tuple[_ChoiceWriting, list[bytes]]:
        """Return a choice, and the frames that come before anything of it."""
        choice = self._choices.get(index)
        if choice is not None:
            return choice, []
        choice = self._choices[index] = _ChoiceWriting(index, self._caller)
        opening: dict[str, JSON] = {"role": "assistant", "content": "", "refusal": None}
        return choice, [self._chunk(index, opening)]

    def _chunk(self, index: int, delta: dict[str, JSON], reason: str | None = None) -> bytes:
        chunk = self._caller.head("chat.completion.chunk")
        chunk["choices"] = [
            {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        ]
        return sse.encode(encode(chunk))


class _Caller:
    """What of the caller's request shapes its answer."""

    __slots__ = ("_head", "custom_names", "is_legacy", "wants_usage")

    def __init__(self, head: AnswerHead) -> None:
        body = head.body
        self._head = head
        self.wants_usage = as_object(body.get("stream_options")).get("include_usage") is True
        # Functions instead of tools: the call is looked for in `function_call`.
        self.is_legacy = bool(body.get("functions")) and not body.get("tools")
        customs = (as_object(as_object(tool).get("custom")) for tool in as_list(body.get("tools")))
        self.custom_names = {name for custom in customs if (name := as_text(custom.get("name")))}

    def head(self, kind: str) -> dict[str, JSON]:
        head = self._head
        return {
            "id": f"chatcmpl-{head.seed}",
            "object": kind,
            "created": head.created_s,
            "model": head.model,
        }

    def id_of(self, choice: int, position: int, call_id: str | None) -> str:
        return call_id or made_id(self._head.seed, choice, position)

    def stands_for_custom(self, name: str, kind: str) -> bool:
        """Say whether a function was offered upstream in place of a custom tool."""
        return kind != "custom" and name in self.custom_names


class _CallWriting:
    """One call of a stream, as far as it was told and written."""

    __slots__ = ("call_id", "held", "index", "kind", "name", "position", "written_name")

    def __init__(self, position: int) -> None:
        self.position = position
        self.call_id: str | None = None
        self.name = ""
        self.kind = "function"
        self.held: list[str] = []  # arguments that are not written yet
        self.index: int | None = None  # in the caller's stream; None = it is not opened
        self.written_name = ""


class _ChoiceWriting:
    """The calls of one choice of a stream."""

    __slots__ = ("_at", "_caller", "_calls", "_opened_count")

    def __init__(self, at: int, caller: _Caller) -> None:
        self._at = at
        self._caller = caller
        self._calls: dict[int, _CallWriting] = {}
        self._opened_count = 0

    def take(self, piece: Piece) -> list[dict[str, JSON]]:
        """Take in a piece of a call and return the deltas that can be written by now.

        A call is opened when its name cannot grow any more: with its first arguments, or with the
        next call. What comes after one that cannot be opened yet waits with it.
        """
        call = self._calls.get(piece.position)
        if call is None:
            call = self._calls[piece.position] = _CallWriting(piece.position)
        call.call_id = piece.call_id or call.call_id
        call.name = piece.name or call.name
        if piece.text:
            call.held.append(piece.text)
        if call.index is not None:
            return self._go_on(call)
        call.kind = piece.call_kind
        deltas: list[dict[str, JSON]] = []
        last = max(self._calls)
        for position in sorted(self._calls):
            waiting = self._calls[position]
            if waiting.index is None:
                is_named = bool(waiting.name) and (bool(waiting.held) or position < last)
                # What stands for a custom tool is unwrapped, so needs its whole arguments.
                if not is_named or self._caller.stands_for_custom(waiting.name, waiting.kind):
                    break
                deltas += self._open(waiting)
        return deltas

    def finish(self, choice: Choice) -> list[dict[str, JSON]]:
        """Return the deltas of all that is not written yet."""
        deltas: list[dict[str, JSON]] = []
        for whole in _own_calls(choice):
            call = self._calls.get(whole.position)
            if call is None or call.index is None:
                call = _CallWriting(whole.position)
                call.call_id, call.name, call.kind = whole.call_id, whole.name, whole.kind
                text = whole.arguments
                if self._caller.stands_for_custom(whole.name, whole.kind):
                    call.kind, text = "custom", unwrap_free_text(text)
                call.held = [text] if text else []
                deltas += self._open(call)
        return deltas

    def _open(self, call: _CallWriting) -> list[dict[str, JSON]]:
        call.index = self._opened_count
        self._opened_count += 1
        call.written_name = call.name
        call_id = self._caller.id_of(self._at, call.position, call.call_id)
        return [*self._write(call, call.name, "", call_id), *self._go_on(call)]

    def _go_on(self, call: _CallWriting) -> list[dict[str, JSON]]:
        """Return the deltas of what an opened call has got since."""
        deltas: list[dict[str, JSON]] = []
        if call.name != call.written_name and call.name.startswith(call.written_name):
            # A name that grew after its arguments had begun: clients join the parts.
            rest = call.name[len(call.written_name) :]
            call.written_name = call.name
            deltas += self._write(call, rest, None)
        for text in call.held:
            deltas += self._write(call, None, text)
        call.held = []
        return deltas

    def _write(
        self, call: _CallWriting, name: str | None, text: str | None, call_id: str | None = None
    ) -> list[dict[str, JSON]]:
        is_custom = call.kind == "custom"
        said: dict[str, JSON] = {}
        if name is not None:
            said["name"] = name
        if text is not None:
            said["input" if is_custom and not self._caller.is_legacy else "arguments"] = text
        if self._caller.is_legacy:
            return [{"function_call": said}] if call.index == 0 else []
        kind = "custom" if is_custom else "function"
        delta: dict[str, JSON] = {"index": call.index}
        if call_id is not None:
            delta |= {"id": call_id, "type": kind}
        delta[kind] = said
        return [{"tool_calls": [delta]}]


def _own_calls(choice: Choice) -> list[ToolCall]:
    """Return the calls that are the caller's to run."""
    return [call for call in choice.tool_calls if not call.runs_upstream]


def _write_message(choice: Choice, calls: Sequence[ToolCall], caller: _Caller) -> JSON:
    message: dict[str, JSON] = {
        "role": "assistant",
        "content": choice.text or (None if calls or choice.refusal else ""),
        "refusal": choice.refusal or None,
    }
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if calls and caller.is_legacy:
        message["function_call"] = {"name": calls[0].name, "arguments": calls[0].arguments}
    elif calls:
        message["tool_calls"] = [_write_call(choice.index, call, caller) for call in calls]
    return message


def _write_call(choice: int, call: ToolCall, caller: _Caller) -> JSON:
    own: dict[str, JSON] = {"id": caller.id_of(choice, call.position, call.call_id)}
    if call.kind == "custom" or caller.stands_for_custom(call.name, call.kind):
        text = call.arguments if call.kind == "custom" else unwrap_free_text(call.arguments)
        return own | {"type": "custom", "custom": {"name": call.name, "input": text}}
    function: JSON = {"name": call.name, "arguments": call.arguments}
    return own | {"type": "function", "function": function}


def _finish_reason(answer: Answer, choice: Choice, why: Ending, caller: _Caller) -> str:
    if choice is not answer.choices[0]:
        why = _ending_of(choice)
    if why == "length":
        return "length"
    if why == "filtered":
        # A refusal in words ends like any other answer; `refusal` is what tells it.
        return "stop" if choice.refusal else "content_filter"
    if _own_calls(choice):
        return "function_call" if caller.is_legacy else "tool_calls"
    return "stop"


def _ending_of(choice: Choice) -> Ending:
    # A call is never lost to a wrong reason, but one that was cut off is none.
    found = _ENDINGS.get((choice.finish_reason or "").lower())
    if found is not None:
        return found
    if _own_calls(choice):
        return "tool_calls"
    return "filtered" if choice.refusal else "stop"
