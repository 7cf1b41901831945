"""How a conversation in the Messages form goes on after calls were refused.

The answer is put back as the model gave it, thinking and signatures included, since the API takes
it only so; what the model is told are results that are errors. The counterpart is `turns.py`, which
finds the place for them in what an agent sends. Consecutive messages of one side are one turn to
the API, so it does not matter how an agent cuts them.
Source: platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use and
.../programmatic-tool-calling, .../build-with-claude/extended-thinking, November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentstate.dialects.anthropic_messages_calls import THOUGHTS, read_object, text_of
from agentstate.dialects.anthropic_messages_reading import RUN_UPSTREAM, is_tool_call
from agentstate.dialects.base import Round, Splice
from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.dialects.turns import Piece, round_messages, splice_messages
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest

_FORCED = frozenset(("any", "tool"))  # choices that make the model call a tool, whatever it is told


def go_on(request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
    """Return the request after a round in which all calls were refused.

    A model that was made to call a tool is free now: else it could only ask for the same again.
    """
    body = {key: value for key, value in request.items() if key != "stream"}
    messages = as_list(body.get("messages"))
    body["messages"] = [*messages, *round_messages(CONVERSATION, asked)]
    choice = as_object(body.get("tool_choice"))
    if choice.get("type") in _FORCED:
        free = {key: value for key, value in choice.items() if key != "name"}
        body["tool_choice"] = {**free, "type": "auto"}
    if (container_id := _container_of(asked.answer)) is not None:
        wanted = body.get("container")
        is_open = isinstance(wanted, dict)
        body["container"] = {**as_object(wanted), "id": container_id} if is_open else container_id
    return body


def _container_of(answer: bytes) -> str | None:
    """Return the container whose code waits for a call: results are taken with its name only.
    Else none is named, since it may be gone by the time that a person has decided."""
    message = read_object(answer)
    callers = [
        as_text(as_object(as_object(block).get("caller")).get("type")) or ""
        for block in as_list(message.get("content"))
    ]
    if not any(caller.startswith("code_execution") for caller in callers):
        return None
    return as_text(as_object(message.get("container")).get("id"))


def spliced(body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
    """Put what the agent has not seen back into a later request."""
    messages = splice_messages(CONVERSATION, as_list(body.get("messages")), splice, "messages")
    return None if messages is None else {**body, "messages": messages}


class Conversation:
    """How the Messages form writes a conversation; see `turns.Form`."""

    answers_in_order = False

    def read(self, message: JSON) -> tuple[str, list[Piece]]:
        """Return whose message it is and what counts of it: no thoughts, no cache marks."""
        pieces: list[Piece] = []
        calls = 0
        for at, block in enumerate(self.blocks(message)):
            fields = as_object(block)
            kind = fields.get("type")
            if kind == "text":
                if text := text_of(fields):
                    pieces.append(Piece("text", at, text))
            elif kind == "tool_result":
                outcome: JSON = [_flat(fields.get("content")), fields.get("is_error") is True]
                pieces.append(Piece("result", at, outcome))
            elif is_tool_call(fields) and kind not in RUN_UPSTREAM:
                value: JSON = [fields.get("name"), fields.get("input")]
                call_id = as_text(fields.get("id")) or ""
                pieces.append(Piece("call", at, value, call_id, calls))
            elif kind not in THOUGHTS:
                pieces.append(Piece("other", at, _unmarked(block)))
            calls += is_tool_call(fields)
        return as_text(as_object(message).get("role")) or "", pieces

    def blocks(self, message: JSON) -> list[JSON]:
        """Return a message's blocks; a bare text as one."""
        content = as_object(message).get("content")
        if isinstance(content, str):
            return [self.text(content)] if content else []
        return list(as_list(content))

    def with_blocks(self, message: JSON, blocks: list[JSON]) -> JSON:
        """Return a message with other blocks."""
        return {**as_object(message), "content": blocks}

    def answer(self, body: bytes) -> JSON:
        """Return an answer as a message. The API does not take back a text with nothing in it,
        which models do give."""
        message = read_object(body)
        content = message.get("content")
        if not isinstance(content, list):
            raise BadRequest("The recorded answer is no message with content.")
        said = [block for block in content if not _is_blank_text(as_object(block))]
        return {"role": "assistant", "content": said}

    def results(self, answer: JSON, told: Mapping[int, str]) -> list[JSON]:
        """Return what became of calls as results that are errors."""
        blocks = self.blocks(answer)
        results: list[JSON] = []
        for piece in self.read(answer)[1]:
            if piece.kind != "call" or piece.position not in told:
                continue
            if not piece.call_id:
                raise BadRequest("The answer has a call without an id: no result can name it.")
            result: dict[str, JSON] = {
                "type": "tool_result",
                "tool_use_id": piece.call_id,
                "content": told[piece.position],
                "is_error": True,
            }
            if (toolset := as_object(blocks[piece.at]).get("toolset_name")) is not None:
                result["toolset_name"] = toolset
            results.append(result)
        return results

    def text(self, text: str) -> JSON:
        """Return a text as a block."""
        return {"type": "text", "text": text}

    def reply(self, blocks: list[JSON]) -> JSON:
        """Return a message of the user."""
        return {"role": "user", "content": blocks}


CONVERSATION = Conversation()


def _is_blank_text(block: dict[str, JSON]) -> bool:
    return block.get("type") == "text" and not text_of(block).strip()


def _flat(content: JSON) -> JSON:
    """Return a tool's result in one form: texts as one text, which it may have been."""
    if not isinstance(content, list):
        return content
    blocks = [as_object(block) for block in content]
    if all(block.get("type") == "text" for block in blocks):
        return "".join(map(text_of, blocks))
    return [_unmarked(block) for block in content]


def _unmarked(block: JSON) -> JSON:
    if not isinstance(block, dict):
        return block
    return {key: value for key, value in block.items() if key != "cache_control"}
