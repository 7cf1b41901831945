"""Where an answer stands in what an agent sends later, however the agent keeps its conversation.

Run with the Messages form; what is special to a form is tested with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects.anthropic_messages_turns import CONVERSATION
from agentstate.dialects.base import Round, Splice
from agentstate.dialects.turns import Form, is_same, round_messages, splice_messages
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.errors import BadRequest
from tests.dialects.contract import steady

FORM: Form = CONVERSATION
Block = dict[str, Any]
HI: Block = {"type": "text", "text": "Hi"}
THOUGHT: Block = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def text(value: str) -> Block:
    return {"type": "text", "text": value}


def call(number: int, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": f"call_{number}", "name": f"do_{number}", "input": arguments}


def result(number: int, value: str = "done") -> Block:
    return {"type": "tool_result", "tool_use_id": f"call_{number}", "content": value}


def refusal(number: int) -> Block:
    told = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": f"no {number}"}
    return {**told, "is_error": True}


def user(*blocks: Block) -> JSON:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Block) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def answer(*blocks: Block) -> bytes:
    return json.dumps({"type": "message", "role": "assistant", "content": blocks}).encode()


ASKED: list[JSON] = [user(text("Mail them.")), model(text("Whom?")), user(text("All."))]
ONE, TWO, THREE = call(1, to="a"), call(2, to="b"), call(3)


def splice_of(
    *rounds: tuple[bytes, Mapping[int, str]],
    delivered: bytes,
    follows: bytes | None = None,
    asked: Sequence[JSON] = ASKED,
) -> Splice:
    return Splice(
        {"messages": list(asked)}, tuple(Round(*each) for each in rounds), delivered, follows
    )


def spliced(messages: Sequence[JSON], splice: Splice) -> list[JSON] | None:
    return splice_messages(FORM, messages, splice, "messages")


# Two rounds of one call each, both refused, then a text; and one of two calls, the first refused.
REFUSED = splice_of(
    (answer(text("I try."), ONE), {0: "no 1"}), (answer(TWO), {0: "no 2"}),
    delivered=answer(text("I try.\n\nNo then.")), follows=answer(text("No then.")),
)  # fmt: skip
BESIDE = splice_of((answer(HI, ONE, TWO), {0: "no 1"}), delivered=answer(HI, TWO))


# --- rule 1: what was asked, then what was delivered ----------------------------------------------


def test_rounds_and_the_answer_after_them_take_the_place_of_what_was_delivered() -> None:
    later = [user(text("Go on."))]
    assert spliced([*ASKED, model(text("I try.\n\nNo then.")), *later], REFUSED) == [
        *ASKED,
        model(text("I try."), ONE), user(refusal(1)),
        model(TWO), user(refusal(2)),
        model(text("No then.")),
        *later,
    ]  # fmt: skip


def test_refused_calls_are_put_back_before_the_next_one() -> None:
    later = [user(text("Go on."))]
    assert spliced([*ASKED, model(HI, TWO), user(result(2)), *later], BESIDE) == [
        *ASKED, model(HI, ONE, TWO), user(refusal(1), result(2)), *later,
    ]  # fmt: skip


def test_the_last_ones_go_after_those_that_are_there() -> None:
    last = splice_of((answer(ONE, TWO, THREE), {1: "no 2", 2: "no 3"}), delivered=answer(ONE))
    assert spliced([*ASKED, model(ONE, THOUGHT), user(result(1))], last) == [
        *ASKED, model(ONE, TWO, THREE, THOUGHT), user(refusal(2), refusal(3), result(1)),
    ]  # fmt: skip


def test_where_no_call_is_left_they_go_to_the_end_with_results_of_their_own() -> None:
    bare = splice_of((answer(HI, ONE), {0: "no 1"}), delivered=answer(HI))
    assert spliced([*ASKED, model(HI), user(text("Go on."))], bare) == [
        *ASKED, model(HI, ONE), user(refusal(1)), user(text("Go on.")),
    ]  # fmt: skip
    assert spliced([*ASKED, model(HI)], bare) == [*ASKED, model(HI, ONE), user(refusal(1))]


def test_earlier_rounds_come_before_what_was_left_of_the_last() -> None:
    both = splice_of(
        (answer(text("I try."), ONE), {0: "no 1"}),
        (answer(THOUGHT, HI, TWO, THREE), {0: "no 2"}),
        delivered=answer(text("I try.\n\nHi"), call(3, edited=1)),
    )
    edited = {**call(3, edited=1), "cache_control": {"type": "ephemeral"}}
    assert spliced([*ASKED, model(text("I try.\n\nHi"), edited), user(result(3))], both) == [
        *ASKED,
        model(text("I try."), ONE), user(refusal(1)),
        model(THOUGHT, HI, TWO, edited), user(refusal(2), result(3)),
    ]  # fmt: skip


def test_the_answer_after_the_rounds_keeps_what_the_agent_carried_out() -> None:
    edited = call(2, to="c")
    later = splice_of(
        (answer(ONE), {0: "no 1"}), delivered=answer(edited), follows=answer(THOUGHT, TWO)
    )
    assert spliced([*ASKED, model(edited), user(result(2))], later) == [
        *ASKED, model(ONE), user(refusal(1)), model(THOUGHT, edited), user(result(2)),
    ]  # fmt: skip


def test_an_answer_that_says_nothing_is_no_message() -> None:
    silent = splice_of(
        (answer(HI, ONE), {0: "no 1"}), delivered=answer(HI), follows=answer(text(" "))
    )
    assert spliced([*ASKED, model(HI), user(text("Well?"))], silent) == [
        *ASKED, model(HI, ONE), user(refusal(1)), user(text("Well?")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "messages",
    [
        [],
        ASKED,
        ASKED[:2],
        [*ASKED, user(text("Go on."))],
        [*ASKED, model(text("Something else."))],
        [*ASKED, model(text("I try.\n\nNo then."), ONE)],
        [*ASKED[:2], user(text("Others.")), model(text("I try.\n\nNo then."))],
        [*ASKED[2:], model(text("I try.\n\nNo then."))],
        [model(text("I try.\n\nNo then."))],
        [None, 1, "x", {"role": 1}],
    ],
)
def test_other_conversations_are_left_alone(messages: list[JSON]) -> None:
    assert spliced(messages, REFUSED) is None


def test_what_is_not_changed_is_the_same_object() -> None:
    messages = [*ASKED, model(HI, TWO), user(result(2)), model(HI), user(text("Go on."))]
    made = spliced(messages, BESIDE)
    assert made is not None
    same = [index for index, message in enumerate(made) if message is messages[index]]
    assert same == [0, 1, 2, 5, 6]


# --- rule 2: the calls that were delivered, at one place ------------------------------------------


def test_a_shortened_conversation_is_known_by_the_calls_in_it() -> None:
    short = [user(text("So far: all well.")), model(HI, TWO), user(result(2))]
    assert spliced(short, BESIDE) == [
        user(text("So far: all well.")), model(HI, ONE, TWO), user(refusal(1), result(2)),
    ]  # fmt: skip


def test_a_text_that_the_agent_changed_is_left_in_its_words() -> None:
    later = splice_of(
        (answer(ONE), {0: "no 1"}), delivered=answer(HI, TWO), follows=answer(HI, TWO)
    )
    assert spliced([*ASKED, model(text("Hello"), TWO), user(result(2))], later) == [
        *ASKED, model(ONE), user(refusal(1)), model(text("Hello"), TWO), user(result(2)),
    ]  # fmt: skip
    two = splice_of(
        (answer(ONE), {0: "no 1"}), (answer(HI, TWO, THREE), {1: "no 3"}), delivered=answer(HI, TWO)
    )
    assert spliced([*ASKED, model(text("Hello"), TWO), user(result(2))], two) == [
        *ASKED, model(ONE), user(refusal(1)),
        model(text("Hello"), TWO, THREE), user(refusal(3), result(2)),
    ]  # fmt: skip


def test_two_places_are_none() -> None:
    twice = [user(HI), model(TWO), user(result(2)), model(HI, TWO), user(result(2))]
    assert spliced(twice, BESIDE) is None


@pytest.mark.parametrize(
    "other",
    [
        call(3, to="b"),
        {**TWO, "id": "call_9"},
        {**TWO, "name": "do_9"},
        {**TWO, "input": {"to": "x"}},  # some models begin with call_0 in every conversation
    ],
)
def test_calls_that_differ_in_anything_are_others(other: Block) -> None:
    assert spliced([user(HI), model(HI, other), user(result(2))], BESIDE) is None


def test_after_what_was_asked_new_ids_do_not_matter() -> None:
    renamed = {**TWO, "id": "new"}
    named = {**result(2), "tool_use_id": "new"}
    assert spliced([*ASKED, model(HI, renamed), user(named)], BESIDE) == [
        *ASKED, model(HI, ONE, renamed), user(refusal(1), named),
    ]  # fmt: skip


def test_numbers_are_what_they_mean() -> None:
    numbers = splice_of(
        (answer(ONE, TWO), {0: "no 1"}),
        delivered=b'{"type":"message","content":[{"type":"tool_use","id":"call_2","name":"do_2",'
        b'"input":{"a":1.50,"b":1e2}}]}',
    )
    sent: Any = parse(b'{"a":1.5,"b":100}')
    messages = [*ASKED, model({**TWO, "input": sent}), user(result(2))]
    assert spliced(messages, numbers) is not None


# --- what cannot be done --------------------------------------------------------------------------


def test_what_cannot_be_read_is_not_spliced() -> None:
    later: list[JSON] = [*ASKED, model(HI, TWO), user(result(2))]
    for delivered in (b"", b"{}", b"[1]", b'{"content":null}'):
        assert spliced(later, splice_of((answer(ONE), {0: "x"}), delivered=delivered)) is None
    odd = splice_of((b"{}", {0: "x"}), delivered=answer(HI, TWO))
    assert spliced(later, odd) is None
    assert spliced(later, splice_of(delivered=answer(HI, TWO))) is None  # no round


def test_what_is_nested_too_deeply_is_not_spliced() -> None:
    deep: JSON = None
    for _ in range(5_000):
        deep = [deep]
    assert spliced([*ASKED, model(HI, {**TWO, "input": {"a": deep}})], BESIDE) is None
    with pytest.raises(BadRequest, match="nested"):
        is_same(deep, [deep])


def test_a_round_tells_the_model_of_every_call() -> None:
    with pytest.raises(BadRequest, match="all the calls"):
        round_messages(FORM, Round(answer(ONE, TWO), {0: "no 1"}))
    with pytest.raises(BadRequest, match="no call"):
        round_messages(FORM, Round(answer(HI), {}))


def test_a_spelled_call_is_answered_beside_the_others() -> None:
    said, told = round_messages(FORM, Round(answer(HI), {}, "A person refused."))
    assert (said, told) == (model(HI), user(text("Observation: A person refused.")))


def test_numbers_compare_by_what_they_mean() -> None:
    one = parse(b'[1.50,{"a":1e2},1000000000000000000000000000000,"1"]')
    assert is_same(one, parse(b'[1.5,{"a":100},1000000000000000000000000000000,"1"]'))
    assert not is_same(one, parse(b'[1.5,{"a":101},1000000000000000000000000000000,"1"]'))
    assert not is_same(one, parse(b'[1.5,{"a":100},1000000000000000000000000000001,"1"]'))
    assert not is_same(one, parse(b'[1.5,{"a":100},1000000000000000000000000000000,1]'))


# --- however an agent keeps it --------------------------------------------------------------------

MARK = {"cache_control": {"type": "ephemeral"}}
turns = st.lists(
    st.tuples(
        st.lists(st.sampled_from((text("a"), text("b "), text("c\n\nd"))), min_size=1, max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)


def conversation(said: list[tuple[list[Block], bool]], base: int) -> list[JSON]:
    """Return a conversation that begins and ends with the user, with calls here and there."""
    messages: list[JSON] = [user(text("Begin."))]
    for number, (blocks, calls) in enumerate(said, start=base):
        if calls:
            messages += [model(THOUGHT, *blocks, call(number, n=number)), user(result(number))]
        else:
            messages += [model(*blocks), user(*blocks)]
    return messages


def reshaped(messages: Sequence[JSON], draw: st.DataObject) -> list[JSON]:
    """Return a conversation as another agent would keep it: it means the same."""
    made: list[JSON] = []
    turn: Any
    for turn in messages:
        blocks = [dict(block) for block in turn["content"]]
        if draw.draw(st.booleans()):
            blocks = [block for block in blocks if block["type"] != "thinking"]
        if draw.draw(st.booleans()):
            blocks[-1] |= MARK
        for block in blocks:
            if block["type"] == "tool_result" and draw.draw(st.booleans()):
                block["content"] = [{**text(block["content"]), **MARK}]
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        if len(texts) == len(blocks) and draw.draw(st.booleans()):
            made.append({"role": turn["role"], "content": "".join(texts)})
            continue
        cut = draw.draw(st.integers(0, len(blocks)))
        for part in filter(None, (blocks[:cut], blocks[cut:])):
            made.append({"role": turn["role"], "content": part})
    return made


def meaning(messages: Sequence[JSON]) -> list[tuple[str, str]]:
    """Return what a conversation means to the API, texts of one turn joined."""
    found: list[tuple[str, str]] = []
    message: Any
    for message in messages:
        role, content = message["role"], message["content"]
        for block in [text(content)] if isinstance(content, str) else content:
            what = block["type"]
            if what == "text":
                last = found.pop()[1] if found and found[-1][0] == f"{role} text" else ""
                found.append((f"{role} text", last + block["text"]))
            elif what == "tool_result":
                value = block["content"]
                if isinstance(value, list):
                    (value,) = (each["text"] for each in value)
                found.append((f"{role} result {block['tool_use_id']}", str(value)))
            elif what == "tool_use":
                found.append((f"{role} call {block['id']}", json.dumps(block["input"])))
    return found


@given(
    asked=turns,
    later=turns,
    said=st.lists(st.sampled_from((HI, text("b"))), max_size=2),
    fates=st.lists(st.booleans(), min_size=1, max_size=4),
    draw=st.data(),
)
@steady
def test_the_upstream_gets_the_whole_conversation_however_the_agent_keeps_it(
    asked: list[tuple[list[Block], bool]],
    later: list[tuple[list[Block], bool]],
    said: list[Block],
    fates: list[bool],
    draw: st.DataObject,
) -> None:
    request = conversation(asked, 100)
    calls = [call(number, n=number) for number in range(len(fates))]
    refused = [number for number, is_refused in enumerate(fates) if is_refused]
    kept = [number for number in range(len(fates)) if number not in refused]
    left = [calls[number] for number in kept]
    splice = splice_of(
        (answer(*said, *calls), {number: f"no {number}" for number in refused}),
        delivered=answer(*said, *left), asked=request,
    )  # fmt: skip
    rest = [*([user(*map(result, kept))] if kept else []), *conversation(later, 200)]
    if not (said or left):
        return  # no agent keeps a message that says nothing
    # A message of the user's own right after a model's; else the two would be one turn.
    sent = reshaped([*request, model(*said, *left), *rest], draw)

    made = spliced(sent, splice)

    told = [*map(refusal, refused), *map(result, kept)]
    whole = [*request, model(*said, *calls), user(*told), *conversation(later, 200)]
    assert made is not None
    assert meaning(made) == meaning(whole)
