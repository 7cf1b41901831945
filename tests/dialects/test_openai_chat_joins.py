"""Two chat answers as one: what the contract does not say about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.openai_chat_joins import joined_body, joined_events
from tests.dialects.contract import read_frames
from tests.dialects.samples import (
    CHAT_DONE,
    call_delta,
    chat_body,
    chat_chunk,
    chat_message,
    chat_usage_chunk,
)
from tests.helpers.openai_schema import check
from tests.helpers.reading import read_events

FIRST = (
    chat_chunk({"role": "assistant", "content": ""}),
    chat_chunk({"content": "I look."}),
)
SECOND = (
    chat_chunk({"role": "assistant", "content": "", "refusal": None}),
    chat_chunk({"content": "Then "}),
    chat_chunk({"content": "not."}),
    chat_chunk({}, "stop"),
    chat_usage_chunk(),
    CHAT_DONE,
)


def other(*frames: bytes) -> bytes:
    """Return frames as those of another answer, by another model."""
    stream = b"".join(frames).replace(b"chatcmpl-1", b"chatcmpl-2")
    return stream.replace(b"1700000000", b"1700000009").replace(b"gpt-4o-mini", b"gpt-5-mini")


def join(first: bytes, second: bytes) -> bytes:
    """Join two streams."""
    return joined_events(read_frames(first), read_frames(second))


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a stream as a client reads them."""
    return [json.loads(event.data) for event in read_events(stream) if event.data != "[DONE]"]


def test_a_second_stream_goes_on_under_the_first_ones_id_without_its_preface() -> None:
    made = join(b"".join(FIRST), other(*SECOND))

    chunks = chunks_of(made)
    assert len(chunks) == 6
    for chunk in chunks:
        check("CreateChatCompletionStreamResponse", chunk)
        assert [chunk[key] for key in ("id", "created", "model")] == [
            chunks[0][key] for key in ("id", "created", "model")
        ]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert deltas[2:] == [{"content": "\n\nThen "}, {"content": "not."}, {}]
    assert chunks[-1]["usage"] == json.loads(chat_usage_chunk()[6:])["usage"]
    assert made.endswith(CHAT_DONE)


def test_what_says_nothing_of_its_answer_stays_as_it_was() -> None:
    plain = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}], "n": 1.50}\r\n\r\n'
    opening = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'

    assert join(opening, plain + CHAT_DONE) == opening + plain + CHAT_DONE


def test_comments_alone_are_no_beginning() -> None:
    assert join(b": held\n", other(*SECOND)) == b": held\n" + other(*SECOND)


def test_a_head_that_says_nothing_is_not_taken_for_one() -> None:
    azure = b'data: {"id":"","model":"","created":0,"choices":[],"prompt_filter_results":[1]}\n\n'

    made = chunks_of(join(azure + b"".join(FIRST), azure + other(*SECOND)))

    assert [chunk["id"] for chunk in made] == ["", *["chatcmpl-1"] * 2, "", *["chatcmpl-1"] * 4]


def test_no_blank_line_where_there_was_no_text_or_there_is_none() -> None:
    assert b"\\n\\n" not in join(FIRST[0], other(*SECOND))
    calls = (
        chat_chunk({"role": "assistant", "tool_calls": [call_delta(0, "{}", "c", "f")]}),
        chat_chunk({}, "tool_calls"),
    )
    made = join(b"".join(FIRST), other(*calls))
    assert b"\\n\\n" not in made
    assert chunks_of(made)[2]["choices"][0]["delta"] == {
        "tool_calls": [call_delta(0, "{}", "c", "f")]
    }


def test_texts_are_joined_by_choice_and_parts_stay_parts() -> None:
    first = (*FIRST, chat_chunk({"role": "assistant", "content": "Hm."}, index=1))
    parts = [{"type": "text", "text": "Then"}]
    second = (
        chat_chunk({"content": "b"}, index=1), chat_chunk({"content": parts}),
        chat_chunk({"content": "c"}, index=1), chat_chunk({"content": "d"}),
    )  # fmt: skip

    made = chunks_of(join(b"".join(first), other(*second)))

    assert [chunk["choices"][0]["delta"]["content"] for chunk in made[3:]] == [
        "\n\nb", [{"type": "text", "text": "\n\n"}, *parts], "c", "d",
    ]  # fmt: skip


def test_a_role_said_with_every_chunk_is_said_once() -> None:
    second = (chat_chunk({"role": "assistant", "content": "a"}),
              chat_chunk({"role": "assistant", "content": "b"}))  # fmt: skip

    made = chunks_of(join(b"".join(FIRST), other(*second)))

    assert [chunk["choices"][0]["delta"].get("role") for chunk in made] == [
        "assistant",
        *[None] * 3,
    ]


@pytest.mark.clients
def test_the_openai_package_adds_it_up_as_one_answer() -> None:
    streaming = pytest.importorskip("openai.lib.streaming.chat")
    types = pytest.importorskip("openai.types.chat")
    state = streaming.ChatCompletionStreamState()
    for chunk in chunks_of(join(b"".join(FIRST), other(*SECOND))):
        state.handle_chunk(types.ChatCompletionChunk.model_validate(chunk))

    answer = state.get_final_completion()
    assert answer.id == "chatcmpl-1"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "I look.\n\nThen not."


@pytest.mark.parametrize(
    ("own", "content"),
    [
        ("Then not.", "I look.\n\nThen not."),
        ("", "I look."),
        (None, "I look."),
        ([], [{"type": "text", "text": "I look."}]),
        ([{"type": "text", "text": "Then"}],
         [{"type": "text", "text": "I look.\n\n"}, {"type": "text", "text": "Then"}]),
    ],
)  # fmt: skip
def test_a_text_goes_before_any_form_of_content(own: Any, content: Any) -> None:
    body = chat_body({"message": chat_message(content=own), "finish_reason": "stop"})

    made = json.loads(joined_body("I look.", body))

    assert made["choices"][0]["message"]["content"] == content


def test_the_first_choice_is_the_one_with_the_lowest_index() -> None:
    body = (
        b'{"choices":[null,{"index":1,"message":{"content":"b"}},'
        b'{"index":0,"message":{"content":"a"},"n":1.50}]}'
    )

    assert joined_body("I look.", body) == body.replace(b'"a"', b'"I look.\\n\\na"')


def test_a_body_without_choices_has_no_place_for_a_text() -> None:
    assert joined_body("I look.", b'{"choices":[]}') == b'{"choices":[]}'
