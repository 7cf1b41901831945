"""Neutral turns become messages that a trainer takes, and the same ones always."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    with_ids,
)
from agentstate.ground.canonical import encode
from agentstate.ground.chat import Choice, ToolCall
from agentstate.house.export_base import Change
from agentstate.house.export_conversations import (
    NoConversation,
    digest_of,
    root_of,
    write_choice,
    write_messages,
)
from tests.house.export_calls import called, result, said, user

CALL, GIVEN = Called("c", "get", "{}"), Result("c", (Text("5"),))


def write(*turns: Turn, images: bool = False) -> list[dict[str, Any]]:
    return write_messages(turns, images=images, changes=[])


def changed(*turns: Turn, images: bool = False) -> list[tuple[str, int | None, str]]:
    """Return what is not as it was said: code, place and path."""
    changes: list[Change] = []
    write_messages(turns, images=images, changes=changes)
    return [(each.code, each.at, each.path) for each in changes]


def asked(*items: Item) -> Turn:
    return Turn("user", items)


def answered(*items: Item) -> Turn:
    return Turn("assistant", items)


def test_results_come_right_after_their_calls() -> None:
    told = Turn("system", (Text("note"),))
    later = asked(Text("and?"), GIVEN)
    assert write(answered(CALL), told, later) == [
        called(("c", "get", "{}")),
        {"role": "tool", "content": "5", "tool_call_id": "c"},
        {"role": "system", "content": "note"},
        user("and?"),
    ]


def test_what_the_model_says_after_a_call_is_said_with_it() -> None:
    assert write(answered(CALL), answered(Text("I look."))) == [
        called(("c", "get", "{}"), text="I look.")
    ]
    assert write(answered(Text("a")), answered(Text("b"))) == [said("a"), said("b")]


def test_texts_of_the_model_go_on_and_those_of_others_are_paragraphs() -> None:
    assert write(answered(Text("mid"), Text("way"))) == [said("midway")]
    assert write(asked(Text("a"), Text("b"))) == [user("a\n\nb")]
    assert write(Turn("user", (Result("c", (Text("a"), Text("b"))),)))[0]["content"] == "a\n\nb"


def test_a_turn_of_the_model_that_says_nothing_is_none() -> None:
    assert write(answered(), asked()) == [user("")]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Image(url="https://example.org/a.png"), "[image]"),
        (Audio("AAAA", "wav"), "[audio]"),
        (Document(data="AAAA", name="a.pdf"), "[document: a.pdf]"),
        (Document(url="https://example.org/a"), "[document]"),
        (Document(text="words"), "words"),
        (Document(text="words", name="a.txt"), "a.txt\n\nwords"),
        (Refused("no"), "no"),
    ],
)
def test_what_is_no_text_leaves_a_mark(item: Item, text: str) -> None:
    assert write(asked(item)) == [user(text)]


def test_pictures_of_users_alone_are_kept() -> None:
    picture = Image("AAAA", "image/jpeg", detail="low")
    shown = {"url": "data:image/jpeg;base64,AAAA", "detail": "low"}
    (message,) = write(asked(Text("look"), picture), images=True)
    assert message["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": shown},
    ]
    kept = encode(write(answered(Text("a"), picture), Turn("system", (picture,)), images=True))
    assert b"AAAA" not in kept


@pytest.mark.parametrize(("arguments", "text"), [("", "{}"), (" \n", "{}"), ("{ }", "{ }")])
def test_no_arguments_are_an_empty_object(arguments: str, text: str) -> None:
    (message,) = write(answered(Called("c", "get", arguments)))
    assert message == called(("c", "get", text))


def test_a_tool_that_failed_says_so() -> None:
    for given_text, text in (("no", "Error: no"), ("", "Error"), (" ERROR 5", " ERROR 5")):
        failed = Result("c", (Text(given_text),) if given_text else (), is_error=True)
        assert write(asked(failed))[0]["content"] == text


# --- what is not as it was said -------------------------------------------------------------------

PICTURE = Image("AAAA", "image/png")


@pytest.mark.parametrize(
    ("turn", "code"),
    [
        (answered(Text("a"), PICTURE), "image_removed"),
        (answered(Text("a"), Audio("AAAA", "wav")), "audio_removed"),
        (answered(Text("a"), Refused("no")), "refusal_text"),
        (answered(Text("a"), GIVEN), "result_removed"),
        (asked(Text("a"), PICTURE), "image_marked"),
        (asked(Audio("AAAA", "wav")), "audio_marked"),
        (asked(Document(data="AAAA")), "document_marked"),
        (asked(Text("a"), CALL), "call_removed"),
    ],
)
def test_what_a_message_has_lost_is_told_with_its_place(turn: Turn, code: str) -> None:
    path = ".content"
    assert changed(asked(Text("before")), answered(Text("x")), asked(Text("y")), turn) == [
        (code, 3, path)
    ]


def test_what_is_as_it_was_said_is_no_change() -> None:
    whole = asked(Text("a"), Document(text="words"), GIVEN)
    assert changed(Turn("system", (Text("s"),)), asked(Text("a")), answered(CALL), whole) == []
    assert changed(asked(Text("look"), PICTURE), images=True) == []
    assert [code for code, *_ in changed(asked(GIVEN, PICTURE), images=True)] == []


def test_a_picture_is_lost_where_pictures_are_kept_of_users_alone() -> None:
    shown = Result("c", (Text("5"), PICTURE))
    assert changed(answered(CALL, PICTURE), asked(shown, PICTURE), images=True) == [
        ("image_removed", 0, ".content"),
        ("image_marked", 1, ".content"),
    ]


def test_names_that_are_dropped_are_told() -> None:
    named = replace(asked(Text("a")), name="ann")
    assert changed(asked(Text("s")), named) == [("name_removed", 1, "")]
    assert changed(replace(answered(Text("a")), name="bob")) == [("name_removed", 0, "")]
    # What a call says as well is not lost.
    mine, other = replace(GIVEN, name="get"), replace(GIVEN, name="other")
    assert changed(answered(CALL), asked(mine)) == []
    assert changed(answered(CALL), asked(other)) == [("name_removed", 1, "")]


def test_arguments_that_were_empty_are_told_and_mended() -> None:
    changes: list[Change] = []
    blank = Called("d", "get", " ")
    write_messages((asked(Text("a")), answered(CALL, blank)), images=False, changes=changes)
    (change,) = changes
    assert (change.code, change.at, change.is_mended) == ("arguments_empty", 1, True)
    assert change.path == ".tool_calls[1].function.arguments"
    assert changed(answered(replace(blank, is_custom=True))) == []


def test_an_answer_tells_what_is_not_as_it_was_said() -> None:
    calls = (ToolCall(0, "c", "get", "{}"), ToolCall(1, "d", "get", ""))
    said_so = write_choice(Choice(0, text="a", refusal="no", tool_calls=calls), 0)
    assert [(each.code, each.at, each.path) for each in said_so.changes_at(7)] == [
        ("refusal_text", 7, ".content"),
        ("arguments_empty", 7, ".tool_calls[1].function.arguments"),
    ]


# --- answers --------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(["", "call_x"]), max_size=3),
    st.sampled_from(["", "hm"]),
    st.integers(0, 2),
)
def test_an_answer_is_what_it_becomes_in_the_next_request(
    ids: list[str], text: str, turn_count: int
) -> None:
    """Ids that are made are those that the history will have."""
    calls = [ToolCall(at, each or None, "get", "{}") for at, each in enumerate(ids)]
    choice = Choice(0, text=text, tool_calls=tuple(calls))
    if not text and not ids:
        with pytest.raises(NoConversation, match="empty_answer"):
            write_choice(choice, turn_count)
        return
    items = (*((Text(text),) if text else ()), *(Called(each, "get", "{}") for each in ids))
    before = [asked(Text("a"))] * turn_count
    history = with_ids([*before, answered(*items)])
    assert write_choice(choice, turn_count).message == write(*history)[-1]


def test_a_call_without_a_form_makes_no_line() -> None:
    shell = ToolCall(0, "c", "shell", "{}", kind="local_shell_call")
    with pytest.raises(NoConversation) as caught:
        write_choice(Choice(0, tool_calls=(shell,)), 0)
    assert caught.value.reason == "no_chat_form"


def test_what_the_provider_ran_is_not_the_agents() -> None:
    search = ToolCall(0, "c", "web_search", "{}", kind="web_search_call", runs_upstream=True)
    assert write_choice(Choice(0, text="5", tool_calls=(search,)), 0).message == said("5")


# --- names ----------------------------------------------------------------------------------------


def test_a_root_is_all_before_the_first_answer() -> None:
    first = [{"role": "system", "content": "s"}, user("a")]
    assert root_of([*first, said("1")]) == root_of([*first, said("2"), user("b")])
    assert root_of([*first, said("1")]) != root_of([user("a"), said("1")])
    assert len(root_of([said("1")])) == 64


def test_ids_count_for_nothing_but_who_answers_whom() -> None:
    def talk(one: str, two: str, first: str) -> list[dict[str, Any]]:
        return [called((one, "get", "{}"), (two, "get", "{}")), result(first, "5")]

    assert digest_of(talk("a", "b", "a")) == digest_of(talk("x", "y", "x"))
    assert digest_of(talk("a", "b", "a")) != digest_of(talk("a", "b", "b"))
    assert digest_of(talk("a", "b", "a"), None) != digest_of(talk("a", "b", "a"), [])


def test_what_cannot_be_written_has_no_name() -> None:
    deep: Any = {"role": "user", "content": []}
    inner = deep["content"]
    for _ in range(100_000):
        inner.append([])
        inner = inner[0]
    with pytest.raises(NoConversation, match="too_deep"):
        digest_of([deep])
