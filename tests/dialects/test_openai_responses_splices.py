"""What an agent did not see, put back into its later requests, in the Responses form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.base import Round, Splice
from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.ground.canonical import JSON, canonical, encode, parse
from agentstate.wire.sse import SSEDecoder
from tests.dialects import samples_responses as sample
from tests.dialects.samples_responses import (
    body,
    call,
    end,
    message,
    part,
    reasoning,
    response,
    stream,
    text_events,
)

RESPONSES = OpenAIResponses()
USER: dict[str, Any] = {"role": "user", "content": "Mail them."}
LATER: dict[str, Any] = {"role": "user", "content": "And now?"}
ASKED: dict[str, Any] = {"model": "m", "input": [USER]}
A = call(1, arguments='{"a":1}')
B = call(2, name="send_email", arguments='{"b":2}')
C = call(3, name="pay", arguments='{"c":3}')
HI = message(part("Hi"))
THOUGHT = reasoning("Hm.", encrypted_content="gAAAA")
SEARCH: dict[str, Any] = sample.WEB_SEARCH


def result(number: int, output: str = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": output}


def answer(*output: dict[str, Any], response_id: str = "resp_1") -> bytes:
    return body(*output, id=response_id)


def without(item: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in keys}


def splice_of(
    *output: dict[str, Any],
    refused: tuple[int, ...],
    request: dict[str, Any] | None = None,
    follows: bytes | None = None,
    opening: str = "",
) -> Splice:
    """Return what one answer's refusals lead to, as the gate puts it together."""
    first = answer(*output, response_id="resp_1")
    told = {position: f"no {position}" for position in refused}
    if follows is None:
        delivered = RESPONSES.changed_body(first, {(0, position): None for position in refused})
    else:
        delivered = RESPONSES.joined_body(opening, follows)
    return Splice(request or ASKED, (Round(first, told),), delivered, follows)


def spliced(splice: Splice, *items: Any, **fields: Any) -> Any:
    """Return the input of a request with what it lacks; None = it has no place."""
    sent = {**ASKED, **fields, "input": list(items)}
    before = canonical(sent)
    made = RESPONSES.spliced(sent, splice)
    assert canonical(sent) == before, "what was sent is left alone"
    if made is None:
        return None
    assert without(made, "input") == without(sent, "input")
    return made["input"]


def no(position: int, number: int) -> dict[str, Any]:
    return result(number, f"no {position}")


# --- rounds put back ------------------------------------------------------------------------------

FOLLOWS = answer(message(part("I will not."), id="msg_9"), response_id="resp_9")
ROUND = [A, B, no(0, 1), no(1, 2)]


def test_rounds_and_what_follows_come_before_what_the_agent_goes_on_with() -> None:
    splice = splice_of(THOUGHT, A, B, refused=(0, 1), follows=FOLLOWS)
    (said,) = json.loads(FOLLOWS)["output"]

    assert spliced(splice, USER, said, LATER) == [USER, THOUGHT, *ROUND, said, LATER]


@pytest.mark.parametrize(
    "form",
    [
        {"role": "assistant", "content": "I will not."},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I will not."}]},
        {"type": "message", "role": "assistant", "content": [part("I will "), part("not.")]},
        # The Vercel AI SDK, when the upstream stores.
        {"type": "item_reference", "id": "msg_9"},
        {"id": "msg_9"},
    ],
)
def test_an_answer_is_known_in_whatever_form_the_agent_sends_it(form: dict[str, Any]) -> None:
    splice = splice_of(A, B, refused=(0, 1), follows=FOLLOWS)

    assert spliced(splice, USER, form, LATER) == [USER, *ROUND, form, LATER]


def test_a_request_that_was_a_text_is_known_as_a_message() -> None:
    splice = splice_of(
        A, B, refused=(0, 1), follows=FOLLOWS, request={"model": "m", "input": "Mail them."}
    )
    (said,) = json.loads(FOLLOWS)["output"]

    assert spliced(splice, USER, said, LATER) == [USER, *ROUND, said, LATER]


@pytest.mark.parametrize("has_one_message", [False, True])
def test_text_of_the_rounds_is_not_doubled(has_one_message: bool) -> None:
    splice = splice_of(HI, A, B, refused=(0, 1), follows=FOLLOWS, opening="Hi")
    before, said = json.loads(splice.delivered)["output"]
    merged = {"role": "assistant", "content": "Hi\n\nI will not."}
    sent = [merged] if has_one_message else [before, said]

    assert spliced(splice, USER, *sent, LATER) == [USER, HI, *ROUND, said, LATER]


def test_what_a_stream_joined_is_known_again() -> None:
    first = stream(*text_events(0, "Hi"), id="resp_1")
    said = message(part("I will not."), id="msg_9")
    second = stream(*text_events(0, "I will ", "not.", item=said), end(said, id="resp_9"))
    joined = RESPONSES.joined_events(
        SSEDecoder().feed(b"".join(first)), SSEDecoder().feed(b"".join(second))
    )
    delivered = RESPONSES.body_from_events(SSEDecoder().feed(joined))
    rounds = (Round(answer(HI, A), {0: "no 0"}),)
    splice = Splice(ASKED, rounds, delivered, FOLLOWS)
    output = json.loads(delivered)["output"]

    assert spliced(splice, USER, *output, LATER) == [USER, HI, A, no(0, 1), said, LATER]


def test_several_rounds_come_in_their_order() -> None:
    rounds = (Round(answer(A), {0: "no 0"}), Round(answer(B), {0: "no 0"}))
    splice = Splice(ASKED, rounds, FOLLOWS, FOLLOWS)
    (said,) = json.loads(FOLLOWS)["output"]

    assert spliced(splice, USER, said) == [USER, A, no(0, 1), B, no(0, 2), said]


def test_calls_that_follow_a_round_keep_their_edits_and_results() -> None:
    follows = answer(THOUGHT, call(3, name="pay", arguments='{"c": 3}'), response_id="resp_9")
    edited = call(3, name="pay", arguments='{"c":99}')
    rounds = (Round(answer(A), {0: "no 0"}),)
    splice = Splice(ASKED, rounds, answer(THOUGHT, edited, response_id="resp_9"), follows)

    assert spliced(splice, USER, THOUGHT, edited, result(3), LATER) == [
        USER, A, no(0, 1), THOUGHT, edited, result(3), LATER,
    ]  # fmt: skip


# --- calls put back between others ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "sent", "after"),
    [
        ((1,), [A, C, result(1), result(3)],
         [A, B, C, result(1), no(1, 2), result(3)]),
        ((0,), [B, C, result(2), result(3)],
         [A, B, C, no(0, 1), result(2), result(3)]),
        ((2,), [A, B, result(1), result(2)],
         [A, B, C, result(1), result(2), no(2, 3)]),
        ((0, 1), [C, result(3)], [A, B, C, no(0, 1), no(1, 2), result(3)]),
        ((1, 2), [A, result(1)], [A, B, C, result(1), no(1, 2), no(2, 3)]),
        # Results in the order they came in, or between the calls.
        ((1,), [A, C, result(3), result(1)],
         [A, B, C, result(3), result(1), no(1, 2)]),
        ((1,), [A, result(1), C, result(3)],
         [A, B, C, result(1), no(1, 2), result(3)]),
        ((1,), [A, C], [A, B, C, no(1, 2)]),
    ],
)  # fmt: skip
def test_refused_calls_and_what_is_told_of_them_stand_in_order(
    refused: tuple[int, ...], sent: list[Any], after: list[Any]
) -> None:
    splice = splice_of(A, B, C, refused=refused)

    assert spliced(splice, USER, *sent, LATER) == [USER, *after, LATER]


def test_a_result_before_the_answer_is_none_of_its_own() -> None:
    splice = splice_of(A, B, refused=(1,))

    assert spliced(splice, USER, result(9), A, result(1)) == [
        USER, result(9), A, B, result(1), no(1, 2),
    ]  # fmt: skip


def test_what_the_agent_sent_stays_in_its_own_form() -> None:
    mine = without(A, "id", "status") | {"arguments": '{ "a": 1 }'}
    text = {"role": "assistant", "content": "Hi"}
    splice = splice_of(HI, A, B, refused=(1,))

    assert spliced(splice, USER, text, mine, result(1)) == [
        USER, text, mine, B, result(1), no(1, 2),
    ]  # fmt: skip


def test_a_thought_that_the_agent_left_out_is_promised_by_no_id() -> None:
    splice = splice_of(THOUGHT, A, B, refused=(1,))

    assert spliced(splice, USER, A, result(1)) == [
        USER, A, without(B, "id"), result(1), no(1, 2),
    ]  # fmt: skip
    assert spliced(splice, USER, THOUGHT, A, result(1)) == [
        USER, THOUGHT, A, B, result(1), no(1, 2),
    ]  # fmt: skip
    # It is known by what it is sealed in, where ids are left out.
    nameless = without(THOUGHT, "id")
    assert spliced(splice, USER, nameless, A, result(1))[1:4] == [nameless, A, B]


def test_the_thought_of_a_refused_call_keeps_its_place() -> None:
    second = reasoning("Then.", id="rs_2", encrypted_content="gBBBB")
    splice = splice_of(A, second, B, refused=(1,))

    for form in (second, {"type": "item_reference", "id": "rs_2"}):
        assert spliced(splice, USER, A, form, result(1)) == [
            USER, A, form, B, result(1), no(1, 2),
        ]  # fmt: skip


def test_calls_of_the_providers_may_be_left_out() -> None:
    splice = splice_of(SEARCH, HI, A, B, refused=(2,))

    assert spliced(splice, USER, HI, A, result(1)) == [USER, HI, A, B, result(1), no(2, 2)]
    assert spliced(splice, USER, SEARCH, HI, A, result(1))[1] == SEARCH


def test_a_call_the_agent_got_edited_stays_edited() -> None:
    edited = {**A, "arguments": '{"a":99}'}
    delivered = RESPONSES.changed_body(answer(A, B), {(0, 0): '{"a":99}', (0, 1): None})
    splice = Splice(ASKED, (Round(answer(A, B), {1: "no 1"}),), delivered, None)

    assert spliced(splice, USER, edited, result(1)) == [USER, edited, B, result(1), no(1, 2)]
    # ... and as the model gave it, it is not what was delivered.
    assert spliced(splice, USER, A, result(1)) is None


def test_rounds_before_the_last_one_come_first() -> None:
    rounds = (Round(answer(HI, C), {0: "no 0"}), Round(answer(A, B), {1: "no 1"}))
    left = RESPONSES.changed_body(answer(A, B), {(0, 1): None})
    splice = Splice(ASKED, rounds, RESPONSES.joined_body("Hi", left), None)
    output = json.loads(splice.delivered)["output"]

    assert spliced(splice, USER, *output, result(1)) == [
        USER, HI, C, no(0, 3), A, B, result(1), no(1, 2),
    ]  # fmt: skip


# --- where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        [USER],
        [USER, LATER],
        [USER, B, result(2)],
        [USER, {**A, "call_id": "call_9"}, result(1)],
        [USER, {**A, "name": "other"}, result(1)],
        [USER, {**A, "arguments": '{"a":2}'}, result(1)],
        [USER, A, B, result(1), result(2)],
        [USER, A, result(1), LATER, B, result(2)],
        [A, LATER, A, result(1)],
        [],
    ],
)
def test_what_does_not_descend_from_the_answer_is_left_alone(items: list[Any]) -> None:
    assert spliced(splice_of(HI, A, B, refused=(1,)), *items) is None


def test_an_answer_is_found_by_its_calls_where_the_history_was_rewritten() -> None:
    splice = splice_of(HI, A, B, C, refused=(1,))
    summary = {"role": "user", "content": "In short: mail them."}

    for before in (
        [],
        [HI],
        [{"role": "assistant", "content": "Hi"}],
        [{"role": "assistant", "content": "Ho"}],
    ):
        assert spliced(splice, summary, *before, A, C, result(1), result(3), LATER) == [
            summary, *before, A, B, C, result(1), no(1, 2), result(3), LATER,
        ]  # fmt: skip


def test_the_rest_of_an_answer_may_stand_after_its_calls_or_between() -> None:
    second = reasoning("Then.", id="rs_2", encrypted_content="gBBBB")
    splice = splice_of(A, second, B, C, HI, refused=(1,))

    assert spliced(splice, LATER, A, result(1), second, C, HI, result(3)) == [
        LATER, A, second, B, C, HI, result(1), no(1, 2), result(3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [
        [LATER, A, C, LATER, A, C],
        [LATER, C, A],
        [LATER, A],
        [LATER, A, LATER, C],
        [LATER, A, {**C, "arguments": "{}"}],
        [LATER, A, C, {**C, "arguments": "{}"}],
    ],
)
def test_calls_that_name_no_one_place_are_no_anchor(items: list[Any]) -> None:
    assert spliced(splice_of(A, B, C, refused=(1,)), *items) is None


def test_calls_without_ids_are_no_anchor() -> None:
    bare = without(A, "id", "call_id")
    splice = splice_of(bare, B, refused=(1,))

    assert spliced(splice, LATER, bare) is None
    assert spliced(splice, USER, bare) == [USER, bare, B, no(1, 2)]


def test_an_answer_of_which_nothing_is_left_has_no_place() -> None:
    splice = splice_of(A, refused=(0,), follows=answer())

    assert spliced(splice, USER) is None
    assert spliced(splice, USER, LATER) is None
    assert RESPONSES.spliced(ASKED, Splice(ASKED, (), FOLLOWS, FOLLOWS)) is None


def test_the_answer_of_a_chained_request_stands_in_the_same_chain() -> None:
    chained = {**ASKED, "previous_response_id": "resp_0"}
    splice = splice_of(HI, refused=(), request=chained, follows=FOLLOWS)
    said = {"role": "assistant", "content": "I will not."}

    assert spliced(splice, USER, said, previous_response_id="resp_0") == [USER, HI, said]
    assert spliced(splice, USER, said) is None
    assert spliced(splice, USER, said, previous_response_id="resp_7") is None


# --- chained --------------------------------------------------------------------------------------


def chain(splice: Splice, **fields: Any) -> Any:
    return RESPONSES.spliced({"model": "m", **fields}, splice)


def test_results_that_the_upstream_waits_for_are_added() -> None:
    splice = splice_of(A, B, refused=(1,))

    made = chain(splice, previous_response_id="resp_1", input=[result(1), LATER])

    assert made == {
        "model": "m",
        "previous_response_id": "resp_1",
        "input": [no(1, 2), result(1), LATER],
    }


def test_a_text_after_a_chain_becomes_a_message() -> None:
    made = chain(splice_of(A, B, refused=(1,)), previous_response_id="resp_1", input="And now?")

    assert made["input"] == [no(1, 2), LATER]


def test_a_chain_of_which_the_upstream_has_all_is_returned_as_it_is() -> None:
    sent = {"model": "m", "previous_response_id": "resp_9", "input": "And now?"}

    assert RESPONSES.spliced(sent, splice_of(A, refused=(0,), follows=FOLLOWS)) == sent


def test_a_chain_goes_on_from_the_last_answer_whatever_id_the_agent_knows() -> None:
    """A stream keeps the id it began with, of an answer whose calls still wait for results."""
    followed = splice_of(A, refused=(0,), follows=FOLLOWS)
    rounds = (Round(answer(C, response_id="resp_1"), {0: "no 0"}),
              Round(answer(A, B, response_id="resp_2"), {1: "no 1"}))  # fmt: skip
    left = RESPONSES.changed_body(answer(A, B, response_id="resp_1"), {(0, 1): None})

    assert chain(followed, previous_response_id="resp_1", input="And now?") == {
        "model": "m", "previous_response_id": "resp_9", "input": "And now?",
    }  # fmt: skip
    assert chain(
        Splice(ASKED, rounds, left, None), previous_response_id="resp_1", input=[result(1)]
    ) == {"model": "m", "previous_response_id": "resp_2", "input": [no(1, 2), result(1)]}


def test_another_chain_is_left_alone() -> None:
    splice = splice_of(A, B, refused=(1,))

    assert chain(splice, previous_response_id="resp_7", input=[result(1)]) is None
    nameless = Splice(ASKED, (Round(body(A, B, id=None), {1: "no"}),), body(A, id=None), None)
    assert chain(nameless, previous_response_id="resp_7", input=[result(1)]) is None


def test_a_conversation_gets_the_results_it_waits_for_once() -> None:
    asked = {**ASKED, "conversation": "conv_1"}
    beside = splice_of(A, B, refused=(1,), request=asked)
    followed = splice_of(A, refused=(0,), request=asked, follows=FOLLOWS)
    named = {"id": "conv_1"}

    made = chain(beside, conversation=named, input=[result(1)])
    assert made == {"model": "m", "conversation": named, "input": [no(1, 2), result(1)]}
    for splice in (beside, followed):
        sent: dict[str, JSON] = {"conversation": "conv_1", "input": [LATER]}
        assert RESPONSES.spliced(sent, splice) == sent
    assert chain(beside, conversation="conv_2", input=[result(1)]) is None


def test_a_spliced_request_can_be_sent() -> None:
    splice = splice_of(A, B, refused=(1,))
    made = RESPONSES.spliced({**ASKED, "input": [USER, A, result(1)]}, splice)

    assert made is not None
    assert RESPONSES.read_ask(parse(encode(made))).messages == tuple(made["input"])  # type: ignore[arg-type]


def test_a_whole_response_is_read_as_the_sample_makes_it() -> None:
    """The other tests rest on it."""
    assert json.loads(answer(A, response_id="resp_5")) == {**response(A), "id": "resp_5"}
