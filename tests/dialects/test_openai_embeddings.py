"""Embeddings: what makes an answer of vectors one, and that nothing of it is a stream."""

from __future__ import annotations

import pytest

from agentstate.dialects.base import Mark
from agentstate.dialects.openai_embeddings import OpenAIEmbeddings
from agentstate.ground.chat import Usage
from agentstate.wire.sse import Frame
from tests.dialects.samples import embeddings_body

DIALECT = OpenAIEmbeddings()


def test_a_request_has_no_messages_and_its_input_counts() -> None:
    ask = DIALECT.read_ask({"model": "m", "input": ["a"], "user": "u", "stream": True})

    assert ask.messages == ()
    assert ask.envelope == {"model": "m", "input": ["a"]}
    assert not ask.streams


def test_an_answer_has_its_model_and_usage() -> None:
    answer = DIALECT.read_answer(embeddings_body([0.1], "AACAPw=="))

    assert answer.is_complete
    assert answer.model == "text-embedding-3-small"
    assert answer.usage == Usage(8, 0)
    assert answer.choices == ()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (embeddings_body(), "an empty list"),
        (embeddings_body(data=None), "null"),
        (embeddings_body(data={}), "an object"),
        (embeddings_body([0.1], None), "data[1]"),
        (embeddings_body([0.1], []), "data[1]"),
        (embeddings_body(data=["x"]), "data[0]"),
        (b"[]", "a list"),
        (b"<html>", "no JSON"),
        (b'{"object":"error","message":"busy"}', "busy"),
    ],
)
def test_what_holds_no_vectors_is_no_answer(body: bytes, said: str) -> None:
    answer = DIALECT.read_answer(body)

    assert not answer.is_complete
    assert said in str(answer.fault)


def test_a_stream_is_refused_whatever_it_says() -> None:
    assembler = DIALECT.assembler()

    assert assembler.feed(Frame(b": hi\n\n", None)) is Mark.PREFACE
    assert assembler.feed(Frame(b"", embeddings_body([0.1]))) is Mark.ERROR
    assert "a stream of events" in str(assembler.finish(True).fault)


def test_a_body_has_no_stream_form() -> None:
    assert DIALECT.events_from_body(embeddings_body([0.1]), True) == []
    assert DIALECT.done_frame() == b""
    assert DIALECT.body_from_events([]) == b""
