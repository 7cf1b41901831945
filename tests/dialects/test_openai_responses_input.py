"""The input of a Responses request, item by item."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects.call_arguments import unwrap_free_text
from agentstate.dialects.neutral import (
    Audio,
    Called,
    Document,
    Image,
    Item,
    Refused,
    Result,
    Text,
    Turn,
)
from agentstate.dialects.openai_responses_input import read_turns, write_input
from agentstate.ground.canonical import JSON
from tests.dialects import samples_responses as sample
from tests.dialects.samples_responses import call, message, part, reasoning

USER = {"role": "user", "content": "Hi"}
HI = Turn("user", (Text("Hi"),))
PNG = "data:image/png;base64,QUJD"
PDF = "data:application/pdf;base64,QUJD"
EPHEMERAL: JSON = {"type": "ephemeral"}


def read(*items: Any, **fields: Any) -> tuple[tuple[Turn, ...], list[str]]:
    unsaid: list[str] = []
    return read_turns({"input": list(items), **fields}, unsaid), unsaid


def write(*turns: Turn) -> tuple[dict[str, Any], list[str]]:
    dropped: list[str] = []
    return write_input(turns, True, dropped), dropped


def written_part(item: Item) -> Any:
    """Return a part as it is written, beside one that keeps it from being a string."""
    written, _ = write(Turn("user", (Image(url="https://a/b"), item)))
    return written["input"][0]["content"][1]


# --- reading --------------------------------------------------------------------------------------


def test_a_text_is_a_message_of_the_user() -> None:
    assert read_turns({"input": "Hi"}, []) == (HI,)


def test_instructions_come_first() -> None:
    turns, _ = read({"role": "developer", "content": "Now."}, USER, instructions="Be kind.")

    assert turns == (Turn("system", (Text("Be kind."),)), Turn("system", (Text("Now."),)), HI)


def test_what_a_model_says_in_a_row_is_one_turn_and_so_are_results() -> None:
    custom = {**sample.CUSTOM_CALL, "call_id": "call_2"}

    turns, unsaid = read(
        USER,
        reasoning("Hm.", encrypted_content="gAAA"),
        message(part("I "), part("look.")),
        call(),
        custom,
        {"type": "function_call_output", "call_id": "call_1", "output": "5 degrees"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"},
        USER,
        USER,
    )

    assert turns == (
        HI,
        Turn(
            "assistant",
            (
                Text("I "),
                Text("look."),
                Called("call_1", "get_weather", call()["arguments"]),
                Called("call_2", "run_sql", "delete from t", is_custom=True),
            ),
        ),
        Turn(
            "user",
            (
                Result("call_1", (Text("5 degrees"),)),
                Result("call_2", (Text("ok"),), is_custom=True),
            ),
        ),
        HI,
        HI,
    )
    assert unsaid == ["input[1]: thinking"]


@pytest.mark.parametrize(
    "item",
    [
        sample.WEB_SEARCH, sample.FILE_SEARCH, sample.INTERPRETER, sample.IMAGE, sample.MCP_CALL,
        sample.MCP_TOOLS, sample.MCP_APPROVAL, sample.LOCAL_SHELL, sample.SHELL,
        sample.APPLY_PATCH, sample.COMPUTER,
        {"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"},
        {"type": "computer_call_output", "call_id": "call_1", "output": {}},
        {"type": "compaction", "encrypted_content": "x"}, {"type": "what"},
        {"role": "critic", "content": "Hi"},
    ],
)  # fmt: skip
def test_what_only_the_vendor_knows_is_named(item: dict[str, Any]) -> None:
    assert read(USER, item) == ((HI,), ["input[1]"])


@pytest.mark.parametrize(
    ("given", "item"),
    [
        ({"type": "input_text", "text": "Hi"}, Text("Hi")),
        ({"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": {"mode": "explicit"}},
         Text("Hi", EPHEMERAL)),
        ({"type": "input_image", "image_url": PNG, "detail": "low"},
         Image("QUJD", "image/png", detail="low")),
        ({"type": "input_image", "image_url": "https://a/b"}, Image(url="https://a/b")),
        ({"type": "input_image", "image_url": "data:image/svg+xml,<svg/>"},
         Image(url="data:image/svg+xml,<svg/>")),
        ({"type": "input_file", "file_data": PDF, "filename": "a.pdf"},
         Document("QUJD", "application/pdf", name="a.pdf")),
        ({"type": "input_file", "file_data": "QUJD"}, Document("QUJD", "application/pdf")),
        ({"type": "input_file", "file_url": "https://a/b"}, Document(url="https://a/b")),
        ({"type": "refusal", "refusal": "No."}, Refused("No.")),
    ],
)  # fmt: skip
def test_a_part_is_read(given: dict[str, Any], item: Item) -> None:
    assert read({"role": "user", "content": [given]}) == ((Turn("user", (item,)),), [])


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "file_id": "file_1"},
        {"type": "input_audio", "input_audio": {}},
        {"type": "input_text"},
        "Hi",
    ],
)
def test_a_part_that_has_no_place_is_named(part: Any) -> None:
    text = {"type": "input_text", "text": "Hi"}

    assert read({"role": "user", "content": [text, part]}) == ((HI,), ["input[0].content[1]"])


def test_a_result_can_show_things() -> None:
    output = [
        {"type": "input_text", "text": "done"},
        {"type": "input_image", "image_url": PNG},
        {"type": "input_file", "file_id": "file_1"},
    ]

    turns, unsaid = read(
        call(), {"type": "function_call_output", "call_id": "call_1", "output": output}
    )

    assert turns[1].items == (Result("call_1", (Text("done"), Image("QUJD", "image/png"))),)
    assert unsaid == ["input[1].output[2]"]


def test_results_without_an_id_answer_the_calls_without_one() -> None:
    turns, _ = read(
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "output": "ok"},
    )

    (called,), (result,) = turns[0].items, turns[1].items
    assert isinstance(called, Called)
    assert isinstance(result, Result)
    assert called.call_id == result.call_id != ""


def test_odd_items_are_read_as_far_as_they_go() -> None:
    turns, unsaid = read(
        {"type": "function_call", "call_id": "a", "name": "f", "namespace": "n"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call_output", "call_id": "a", "output": {"a": 1}},
        {"role": "user", "content": None},
        {"role": "assistant", "content": ""},
    )

    assert turns == (
        Turn("assistant", (Called("a", "f", ""), Called("b", "f", '{"a":1}'))),
        Turn("user", (Result("a", ()),)),
    )
    assert unsaid == ["input[0].namespace", "input[2].output"]


@pytest.mark.parametrize(("arguments", "text"), [('{"input":"a"}', "a"), ('"a"', '"a"'), ("", "")])
def test_free_text_is_taken_out_of_its_object(arguments: str, text: str) -> None:
    assert unwrap_free_text(arguments) == text


# --- writing --------------------------------------------------------------------------------------


def test_leading_words_of_the_system_are_instructions_and_later_ones_stay() -> None:
    written, dropped = write(
        Turn("system", (Text("A"), Text("B"))),
        Turn("system", (Text("C"),)),
        HI,
        Turn("system", (Text("D"),)),
        HI,
    )

    assert written["instructions"] == "A\n\nB\n\nC"
    assert [(each["role"], each["content"]) for each in written["input"]] == [
        ("user", "Hi"), ("system", "D"), ("user", "Hi"),
    ]  # fmt: skip
    assert dropped == []


def test_a_system_that_speaks_alone_is_the_input() -> None:
    written, _ = write(Turn("system", (Text("A"),)))

    assert written == {"input": [{"type": "message", "role": "system", "content": "A"}]}


def test_a_system_that_shows_a_picture_stays_in_its_place() -> None:
    written, dropped = write(Turn("system", (Text("A"), Image(url="https://a/b"))), HI)

    assert "instructions" not in written
    assert len(written["input"][0]["content"]) == 2
    assert dropped == []


def test_the_order_of_what_a_model_says_is_kept() -> None:
    written, _ = write(
        Turn(
            "assistant",
            (
                Text("I "),
                Text("look."),
                Called("call_1", "f", '{"a": 1}'),
                Text(""),
                Refused("No."),
                Called("call_2", "g", "x", is_custom=True),
                Text("Well."),
            ),
        )
    )

    refusal = written["input"][2]
    assert written["input"] == [
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}'},
        {
            "type": "message",
            "id": refusal["id"],
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "No."}],
        },
        {"type": "custom_tool_call", "call_id": "call_2", "name": "g", "input": "x"},
        {"type": "message", "role": "assistant", "content": "Well."},
    ]
    assert refusal["id"].startswith("msg_")


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (Text("Hi"), {"type": "input_text", "text": "Hi"}),
        (Refused("No."), {"type": "input_text", "text": "No."}),
        (Image("QUJD", "image/png"),
         {"type": "input_image", "image_url": PNG, "detail": "auto"}),
        (Image(url="https://a/b", detail="low"),
         {"type": "input_image", "image_url": "https://a/b", "detail": "low"}),
        (Document("QUJD", "application/pdf", name="a.pdf"),
         {"type": "input_file", "filename": "a.pdf", "file_data": PDF}),
        (Document("QUJD"), {"type": "input_file", "filename": "document.pdf", "file_data": PDF}),
        (Document(text="Hi"), {"type": "input_text", "text": "Hi"}),
        (Document(text="Hi", name="a"), {"type": "input_text", "text": "a\n\nHi"}),
        (Document(url="https://a/b"), {"type": "input_file", "file_url": "https://a/b"}),
    ],
)  # fmt: skip
def test_a_part_is_written(item: Item, part: dict[str, Any]) -> None:
    assert written_part(item) == part


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ((Audio("QUJD", "wav"),), ["audio"]),
        ((Text("Hi"), Audio("QUJD", "wav")), ["audio"]),
        ((Document(url="https://a/b", name="a"),), ["names of documents"]),
        ((Result("a", (Text("x", EPHEMERAL),)),), ["cache markers"]),
        ((Result("a", (), cache=EPHEMERAL),), ["cache markers"]),
    ],
)
def test_what_cannot_be_said_is_named(items: tuple[Item, ...], names: list[str]) -> None:
    _, dropped = write(HI, Turn("user", items))

    assert dropped == names


@pytest.mark.parametrize(
    "item", [Image(url="https://a/b"), Document(text="x"), Audio("QUJD", "wav")]
)
def test_a_model_shows_nothing_but_text(item: Item) -> None:
    written, dropped = write(HI, Turn("assistant", (item,)))

    assert len(written["input"]) == 1
    assert len(dropped) == 1


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (Result("a", ()), ""),
        (Result("a", (Text("ok"),)), "ok"),
        (Result("a", (Text("a"), Text("b"))),
         [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]),
        (Result("a", (Image("QUJD", "image/png"),)),
         [{"type": "input_image", "image_url": PNG, "detail": "auto"}]),
        (Result("a", (Text("no such file"),), is_error=True), "Error: no such file"),
        (Result("a", (Text("Error 5"),), is_error=True), "Error 5"),
        (Result("a", (), is_error=True), "Error"),
        (Result("a", (Image("QUJD", "image/png"),), is_error=True),
         [{"type": "input_text", "text": "Error"},
          {"type": "input_image", "image_url": PNG, "detail": "auto"}]),
    ],
)  # fmt: skip
def test_a_result_is_written(result: Result, output: Any) -> None:
    written, _ = write(HI, Turn("user", (result, Text("and?"))))

    assert written["input"][1:] == [
        {"type": "function_call_output", "call_id": "a", "output": output},
        {"type": "message", "role": "user", "content": "and?"},
    ]
