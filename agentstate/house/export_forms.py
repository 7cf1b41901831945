"""Writes an example in a trainer's form: the object of one line. Pure.

    openai   {"messages", "tools", "parallel_tool_calls"}        OpenAI's supervised fine-tuning
    trl      {"messages", "tools"}, arguments are objects        TRL's SFTTrainer
    axolotl  {"messages", "tools"}                               Axolotl's `chat_template`
    dpo      {"input": {"messages", "tools", "parallel_tool_calls"},
              "preferred_output", "non_preferred_output"}        OpenAI's preference fine-tuning
    kto      {"prompt", "completion", "label", "tools"}, arguments are objects   TRL's KTOTrainer

`tools` and `parallel_tool_calls` are left out where there are no tools. Only OpenAI knows weights.
Source: OpenAI's OpenAPI document, schemas FineTuneChatRequestInput and
FineTunePreferenceRequestInput; huggingface.co/docs/trl/dataset_formats;
docs.axolotl.ai/docs/dataset-formats/conversation.html, November 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from agentstate.dialects.lenient import Unreadable, as_list, as_object, as_text, read_exact
from agentstate.ground.canonical import JSON
from agentstate.house.export_base import Change, Example, Format

Message = Mapping[str, JSON]


def render(example: Example, form: Format) -> dict[str, JSON]:
    """Return the object of one line; numbers in it are as `canonical.parse` gives them.

    An example without `rejected` has no form of dpo, one without `label` none of kto.
    """
    *before, last = example.messages
    match form:
        case "openai":
            return {"messages": _listed(example.messages), **_tools(example, with_parallel=True)}
        case "trl":
            return {"messages": _with_objects(example.messages), **_tools(example)}
        case "axolotl":
            return {"messages": _listed(map(_bare, example.messages)), **_tools(example)}
        case "dpo":
            assert example.rejected is not None, "a preference has two answers"
            asked = {"messages": _listed(map(_bare, before)), **_tools(example, with_parallel=True)}
            return {
                "input": asked,
                "preferred_output": _listed([_bare(last)]),
                "non_preferred_output": _listed(map(_bare, example.rejected)),
            }
        case "kto":
            assert example.label is not None, "it was approved or refused"
            return {
                "prompt": _with_objects(before),
                "completion": _with_objects([last]),
                "label": example.label,
                **_tools(example),
            }
        case _:
            assert_never(form)


def path_of(change: Change, example: Example, form: Format) -> str:
    """Return where in its line a change of an example is; for one of a request the place there."""
    at, last = change.at, len(example.messages) - 1
    if at is None:
        return change.path
    match form:
        case "openai" | "trl" | "axolotl":
            where = f"messages[{at}]"
        case "dpo" if at < last:
            where = f"input.messages[{at}]"
        case "dpo":
            where = "preferred_output[0]" if at == last else "non_preferred_output[0]"
        case "kto":
            where = f"prompt[{at}]" if at < last else "completion[0]"
        case _:
            assert_never(form)
    return where + change.path


def _tools(example: Example, *, with_parallel: bool = False) -> dict[str, JSON]:
    if not example.tools:
        return {}
    said: dict[str, JSON] = {"tools": _listed(example.tools)}
    if with_parallel and example.parallel_tool_calls is not None:
        said["parallel_tool_calls"] = example.parallel_tool_calls
    return said


def _listed(messages: Iterable[Message]) -> JSON:
    return [dict(message) for message in messages]


def _bare(message: Message) -> dict[str, JSON]:
    return {key: value for key, value in message.items() if key != "weight"}


def _with_objects(messages: Iterable[Message]) -> JSON:
    """Return messages whose calls have arguments as objects."""
    changed: list[JSON] = []
    for message in map(_bare, messages):
        if "tool_calls" in message:
            calls = map(as_object, as_list(message["tool_calls"]))
            message["tool_calls"] = [_with_object(call) for call in calls]
        changed.append(message)
    return changed


def _with_object(call: dict[str, JSON]) -> JSON:
    function = as_object(call.get("function"))
    text = as_text(function.get("arguments"))
    try:
        arguments = None if text is None else read_exact(text)
    except Unreadable:
        return call  # the linter says so
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}
