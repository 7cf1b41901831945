"""What the gate needs of text completions, whose calls are spelled in the text.

There is nothing to change in an answer: a spelled call that is refused is answered by an
observation, and the model goes on from its own text and that, as it does in frameworks that prompt
it so (ReAct). The conversation is the prompt. The invariant: a text is put in only where the prompt
begins with what was asked and what was delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentstate.dialects.base import Round, Splice
from agentstate.dialects.edits import no_choice
from agentstate.dialects.lenient import Unreadable, as_integer, as_list, as_object, as_text, read
from agentstate.dialects.openai_chat_calls import read_body
from agentstate.dialects.openai_chat_history import OBSERVATION
from agentstate.dialects.openai_chat_joins import BETWEEN, SAME_KEYS
from agentstate.dialects.openai_chat_reading import read_chunk
from agentstate.dialects.openai_fields import read_choices
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest
from agentstate.wire import sse
from agentstate.wire.sse import Frame


def check_unchanged(changes: Changes) -> None:
    """Raise `BadRequest` if there is anything to change: an answer of this form has no calls."""
    if changes:
        raise BadRequest("A text completion has no tool calls that could be changed.")


def with_text(body: bytes, choice: int, text: str) -> bytes:
    """Put a text in the place of a choice's own; see `base.CallsTools`. Where the request asked for
    its prompt back (`echo`), that is a part of the text."""
    value = read_body(body)
    found = dict(_choices(value))
    if choice not in found:
        raise no_choice(choice, len(found))
    changed = {**found[choice], "text": text}
    if changed.get("logprobs") is not None:
        changed["logprobs"] = None  # they speak of the old text
    if changed.get("finish_reason") in ("length", "content_filter"):
        changed["finish_reason"] = "stop"  # what a person wrote is whole
    choices = as_list(value.get("choices"))
    return encode(
        {**value, "choices": [changed if each is found[choice] else each for each in choices]}
    )


def joined_body(text: str, second: bytes) -> bytes:
    """Put a text before the first choice's own; see `base.CallsTools`."""
    if not text:
        return second
    value = read_body(second)
    choices = as_list(value.get("choices"))
    first = _first_entry(choices)
    if first is None:
        return second
    choice = as_object(choices[first])
    own = as_text(choice.get("text"))
    choice = {**choice, "text": text + BETWEEN + own if own else text}
    return encode({**value, "choices": [*choices[:first], choice, *choices[first + 1 :]]})


def joined_events(first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
    """Let a stream go on as another one; see `base.CallsTools`."""
    head: dict[str, JSON] = {}
    with_text: set[int] = set()  # choices with text, until more of it comes
    for frame in first:
        begun = read_chunk(frame) or {}
        head = {key: begun[key] for key in SAME_KEYS if begun.get(key)} | head
        with_text |= {index for index, choice in _choices(begun) if as_text(choice.get("text"))}
    out = [frame.raw for frame in first]
    for frame in second:
        is_chunk = read_chunk(frame) is not None
        out.append(_continued(frame, head, with_text) if is_chunk else frame.raw)
    return b"".join(out)


def go_on(request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
    """Return the request that follows a round: the prompt, the text, an observation.

    A prompt that is tokens, or several prompts, cannot go on. `echo` is left out: the answer would
    begin with what the client has got already.
    """
    prompt = read_prompt(request)
    if prompt is None or read_choices(request.get("n")) > 1:
        raise BadRequest(
            "A completion goes on from one `prompt` that is text, and one answer to it (`n`).",
            param="prompt",
        )
    if not asked.observation:
        raise BadRequest("The answer spells no tool call, so there is nothing to tell the model.")
    said = read_text(asked.answer)
    if request.get("echo") is True:
        said = said.removeprefix(prompt)
    left_out = ("stream", "stream_options", "echo")
    new = {key: value for key, value in request.items() if key not in left_out}
    return _with_prompt(new, prompt + said + _told(asked))


def spliced(body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
    """Put what the agent has not seen back into a later prompt; see `base.CallsTools`."""
    prompt, before = read_prompt(body), read_prompt(splice.request)
    delivered = read_text(splice.delivered)
    if prompt is None or before is None or not prompt.startswith(before):
        return None
    later = prompt[len(before) :]
    # Some frameworks cut white space off an answer before they go on from it.
    heard = next(
        (each for each in (delivered, delivered.rstrip(), delivered.strip())
         if each and later.startswith(each)),
        None,
    )  # fmt: skip
    if heard is None:
        return None
    seen = "".join(read_text(each.answer) + _told(each) for each in splice.rounds)
    if splice.follows is not None:
        seen += read_text(splice.follows)
    return _with_prompt(dict(body), before + seen + later[len(heard) :])


def read_prompt(body: Mapping[str, JSON]) -> str | None:
    """Return the one prompt of a request; None = it is tokens, or there are several or none."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    return prompt if isinstance(prompt, str) else None


def read_text(answer: bytes) -> str:
    """Return the text of an answer's first choice, '' if there is none."""
    try:
        choices = as_list(as_object(read(answer)).get("choices"))
    except Unreadable:
        return ""
    first = _first_entry(choices)
    return "" if first is None else as_text(as_object(choices[first]).get("text")) or ""


def _told(asked: Round) -> str:
    return f"\n{OBSERVATION}{asked.observation}\n" if asked.observation else ""


def _with_prompt(body: dict[str, JSON], prompt: str) -> dict[str, JSON]:
    return {**body, "prompt": [prompt] if isinstance(body["prompt"], list) else prompt}


def _choices(fields: dict[str, JSON]) -> list[tuple[int, dict[str, JSON]]]:
    """Return the choices of a chunk with their indexes: some leave them out."""
    found: list[tuple[int, dict[str, JSON]]] = []
    for entry, choice in enumerate(as_list(fields.get("choices"))):
        if isinstance(choice, dict):
            index = as_integer(choice.get("index"))
            found.append((entry if index is None else index, choice))
    return found


def _first_entry(choices: list[JSON]) -> int | None:
    """Return which entry is the first choice by its index."""
    entries = [
        (entry if (index := as_integer(choice.get("index"))) is None else index, entry)
        for entry, choice in enumerate(choices)
        if isinstance(choice, dict)
    ]
    return min(entries)[1] if entries else None


def _continued(frame: Frame, head: dict[str, JSON], with_text: set[int]) -> bytes:
    """Return a frame of the second stream as one that goes on from the first."""
    chunk = read_body(frame.data or b"")
    new = chunk | {key: head[key] for key in SAME_KEYS if chunk.get(key) and key in head}
    for index, choice in _choices(chunk):
        text = as_text(choice.get("text"))
        if text and index in with_text:
            with_text.remove(index)
            new["choices"] = [
                {**choice, "text": BETWEEN + text} if each is choice else each
                for each in as_list(new["choices"])
            ]
    return frame.raw if new == chunk else sse.encode(encode(new), frame.event)
