"""Another text in the place of a candidate's own; thoughts, calls, ids and usage stay.

What speaks of the old text goes with it: citations, grounding, log probabilities. The counterpart
for arguments of calls is `gemini_calls.py`.
"""

from __future__ import annotations

from agentstate.dialects.edits import no_choice
from agentstate.dialects.gemini_calls import read_object
from agentstate.dialects.gemini_reading import CALL_NAMES, function_of
from agentstate.dialects.lenient import as_integer, as_list, as_object
from agentstate.ground.canonical import JSON, encode

_OF_TEXT = frozenset(("citationMetadata", "groundingMetadata", "avgLogprobs", "logprobsResult"))
_WHOLE_END = "STOP"
# Ends that say nothing of a text that was cut or held back.
_KEPT_ENDS = (None, _WHOLE_END)


def with_text(body: bytes, choice: int, text: str) -> bytes:
    """Return an answer that says something else; see `base.CallsTools`."""
    chunk = read_object(body)
    candidates: list[JSON] = []
    is_found = False
    for position, candidate in enumerate(as_list(chunk.get("candidates"))):
        index = as_integer(as_object(candidate).get("index"))  # left out where it is 0
        if isinstance(candidate, dict) and (position if index is None else index) == choice:
            is_found = True
            candidate = _changed(candidate, text)
        candidates.append(candidate)
    if not is_found:
        raise no_choice(choice, len(candidates))
    return encode({**chunk, "candidates": candidates})


def _changed(candidate: dict[str, JSON], text: str) -> dict[str, JSON]:
    content = as_object(candidate.get("content"))
    parts = as_list(content.get("parts"))
    texts = [as_object(part) for part in parts if _is_text(part)]
    # A signature stays with the part that it came in.
    said: JSON = {**(texts[0] if texts else {}), "text": text}
    changed: list[JSON] = []
    waiting = [said]
    for part in parts:
        is_text, is_thought = _is_text(part), as_object(part).get("thought") is True
        if is_text or not (texts or is_thought):
            changed += waiting
            waiting = []
        if not is_text:
            changed.append(part)
    kept = {key: value for key, value in candidate.items() if key not in _OF_TEXT}
    kept["content"] = {"role": "model", **content, "parts": [*changed, *waiting]}
    if kept.get("finishReason") not in _KEPT_ENDS:
        kept["finishReason"] = _WHOLE_END
    return kept


def _is_text(part: JSON) -> bool:
    fields = as_object(part)
    is_said = fields.get("thought") is not True and function_of(part, *CALL_NAMES) is None
    return is_said and isinstance(fields.get("text"), str)
