"""How a conversation in Gemini's own form goes on after calls were refused.

The answer is put back as the model gave it, since signatures of thoughts must come back where they
were; what the model is told are responses of functions that are errors, as many as there were calls
and in their order, by which Google tells those without ids apart. The counterpart is `turns.py`,
which finds the place for them in what an agent sends.
Source: ai.google.dev/gemini-api/docs/function-calling and .../thought-signatures, and the
descriptions in the `google-genai` package 3.6 (FunctionResponse), November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentstate.dialects.base import Round, Splice
from agentstate.dialects.gemini_calls import read_object, text_of
from agentstate.dialects.gemini_reading import ASIDE, CALL_NAMES, RESULT_NAMES, function_of
from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.dialects.openai_fields import read_choices
from agentstate.dialects.turns import Piece, round_messages, splice_messages
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest

_CONFIG_NAMES = ("toolConfig", "tool_config")
_CALLING_NAMES = ("functionCallingConfig", "function_calling_config")
_ALLOWED_NAMES = frozenset(("allowedFunctionNames", "allowed_function_names"))


def go_on(request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
    """Return the request after a round in which all calls were refused.

    A model that was made to call a function is free now: else it could only ask for the same again.
    """
    config = as_object(request.get("generationConfig", request.get("generation_config")))
    if read_choices(config.get("candidateCount", config.get("candidate_count"))) > 1:
        raise BadRequest(
            "The request asks for several candidates; a conversation goes on from one."
        )
    body = {key: _freed(value) if key in _CONFIG_NAMES else value for key, value in request.items()}
    contents = as_list(request.get("contents"))
    body["contents"] = [*contents, *round_messages(CONVERSATION, asked)]
    return body


def spliced(body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
    """Put what the agent has not seen back into a later request."""
    contents = splice_messages(CONVERSATION, as_list(body.get("contents")), splice, "contents")
    return None if contents is None else {**body, "contents": contents}


def _freed(config: JSON) -> JSON:
    """Return a tool configuration that makes the model call nothing. Names can be allowed only
    where it is made to."""
    if not isinstance(config, dict):
        return config
    freed = dict(config)
    for name in _CALLING_NAMES:
        calling = as_object(config.get(name))
        mode = calling.get("mode")
        if isinstance(mode, str) and mode.upper() == "ANY":
            kept = {key: value for key, value in calling.items() if key not in _ALLOWED_NAMES}
            freed[name] = {**kept, "mode": "AUTO"}
    return freed


class Conversation:
    """How Gemini's form writes a conversation; see `turns.Form`."""

    answers_in_order = True

    def read(self, message: JSON) -> tuple[str, list[Piece]]:
        """Return whose content it is and what counts of it: no thoughts, no signatures."""
        pieces: list[Piece] = []
        calls = 0
        for at, part in enumerate(self.blocks(message)):
            fields = as_object(part)
            if (call := function_of(part, *CALL_NAMES)) is not None:
                if as_text(call.get("name")) is None and calls:
                    pieces.append(Piece("other", at, call))  # goes with the call before
                    continue
                value: JSON = [call.get("name"), call.get("args") or {}]
                pieces.append(Piece("call", at, value, as_text(call.get("id")) or "", calls))
                calls += 1
            elif (result := function_of(part, *RESULT_NAMES)) is not None:
                outcome: JSON = [result.get("name"), result.get("response")]
                pieces.append(Piece("result", at, outcome))
            elif isinstance(fields.get("text"), str):
                if text := text_of(part):
                    pieces.append(Piece("text", at, text))
            elif what := {key: value for key, value in fields.items() if key not in ASIDE}:
                pieces.append(Piece("other", at, what))
        role = as_text(as_object(message).get("role"))
        # Left out where it is the user's; of old, results had a side of their own.
        return "model" if role == "model" else "user", pieces

    def blocks(self, message: JSON) -> list[JSON]:
        """Return a content's parts; Google takes a single one without its list."""
        parts = as_object(message).get("parts")
        return [parts] if isinstance(parts, dict) else list(as_list(parts))

    def with_blocks(self, message: JSON, blocks: list[JSON]) -> JSON:
        """Return a content with other parts."""
        return {**as_object(message), "parts": blocks}

    def answer(self, body: bytes) -> JSON:
        """Return an answer as a content."""
        candidates = as_list(read_object(body).get("candidates"))
        if len(candidates) != 1:
            raise BadRequest(
                f"The answer has {len(candidates)} candidates; a conversation goes on from one."
            )
        content = as_object(as_object(candidates[0]).get("content"))
        return {"role": "model", **content, "parts": self.blocks(content)}

    def results(self, answer: JSON, told: Mapping[int, str]) -> list[JSON]:
        """Return what became of calls as responses that are errors."""
        blocks = self.blocks(answer)
        results: list[JSON] = []
        for piece in self.read(answer)[1]:
            if piece.kind != "call" or piece.position not in told:
                continue
            call = function_of(blocks[piece.at], *CALL_NAMES) or {}
            if as_text(call.get("name")) is None:
                raise BadRequest("The answer has a call without a name: no response can name it.")
            named: dict[str, JSON] = {key: call[key] for key in ("id", "name") if key in call}
            results.append(
                {"functionResponse": {**named, "response": {"error": told[piece.position]}}}
            )
        return results

    def text(self, text: str) -> JSON:
        """Return a text as a part."""
        return {"text": text}

    def reply(self, blocks: list[JSON]) -> JSON:
        """Return a content of the user."""
        return {"role": "user", "parts": blocks}


CONVERSATION = Conversation()
