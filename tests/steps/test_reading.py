"""Reading recorded answers back."""

from __future__ import annotations

import pytest

from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.reading import read_recorded
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
