"""Reading recorded answers back."""

from __future__ import annotations

import json

import pytest

from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.ground.errors import StoreError
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.reading import error_event_after, read_recorded
from tests.dialects.samples import SAMPLES

DIALECTS = [OpenAIChat(), AnthropicMessages()]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_record_is_read_in_either_form(dialect: OpenAIChat | AnthropicMessages) -> None:
    samples = SAMPLES[dialect.name]

    body = read_recorded(dialect, RecordedAnswer(200, (), "body", samples.bodies["text"]))
    events = b"".join(samples.streams["text"])
    streamed = read_recorded(dialect, RecordedAnswer(200, (), "events", events))

    assert (body.is_complete, streamed.is_complete) == (True, True)
    assert body.text == streamed.text != ""


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_record_that_lacks_its_end_is_read_as_it_is_replayed(
    dialect: OpenAIChat | AnthropicMessages,
) -> None:
    """The proxy died after the commit: what follows the completing frame was not appended."""
    events = b"".join(SAMPLES[dialect.name].streams["text"][:-1])
    recorded = RecordedAnswer(200, (), "events", events, is_sealed=False)

    assert read_recorded(dialect, recorded).is_complete


def test_an_error_goes_on_from_the_numbers_a_client_has_seen() -> None:
    """What the gate keeps was numbered by the upstream and never sent."""
    events = [
        b'data: {"type":"response.created","sequence_number":%d,"response":{}}\n\n' % number
        for number in range(4)
    ]

    def number_after(count: int) -> int:
        event = error_event_after(OpenAIResponses(), StoreError("no"), b"".join(events[:count]))
        found: int = json.loads(event.partition(b"data: ")[2])["sequence_number"]
        return found

    assert [number_after(count) for count in (0, 2, 4)] == [0, 2, 4]


def test_an_error_of_a_dialect_without_numbers_is_its_own() -> None:
    error = StoreError("no")

    assert error_event_after(OpenAIChat(), error, b"data: x") == OpenAIChat().error_event(error)
