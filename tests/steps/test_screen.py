"""What of a stream goes out before the gate has seen it whole, frame by frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Mark
from agentstate.ground.settings import GateSettings
from agentstate.steps.policy import Policy
from agentstate.steps.screen import Screen
from agentstate.wire.sse import SSEDecoder
from tests.dialects import samples_anthropic as messages
from tests.dialects import samples_gemini as gemini
from tests.dialects import samples_responses as responses
from tests.steps.gate_parts import TOOL, Case
from tests.steps.gate_responses import BUILT_IN
from tests.steps.gate_spellings import cases
from tests.steps.scene import DONE, frame

GUARDED = Policy(GateSettings(tools=("delete_rows",)))
HEAD, END = frame({"role": "assistant"}), frame({}, "tool_calls")


def opened(index: int, name: str, arguments: str = "") -> bytes:
    """Make the chunk that opens a call."""
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
    return frame({"tool_calls": [call]})


def more(index: int, **function: str) -> bytes:
    """Make a chunk with a further piece of a call."""
    return frame({"tool_calls": [{"index": index, "function": function}]})


def text(*pieces: str, index: int = 0) -> list[bytes]:
    """Make chunks of text."""
    chunks = [frame({"content": piece}) for piece in pieces]
    return [each.replace(b'"index": 0', b'"index": %d' % index) for each in chunks]


def play(
    frames: Iterable[bytes],
    policy: Policy = GUARDED,
    dialect: str = "openai_chat",
    *,
    choices: int = 1,
    **how: bool,
) -> tuple[list[bytes], Screen]:
    """Take frames in one by one; return what went out with each, and the screen as it is then."""
    found = dialect_by_name(dialect)
    assert found is not None
    assembler = found.assembler(choices)
    screen = Screen(policy, scans_text=how.pop("scans_text", False), **how)
    out: list[bytes] = []
    for raw in frames:
        free = b""
        for one in SSEDecoder().feed(raw):
            free += screen.take(one.raw, assembler.feed(one), assembler)
        out.append(free)
    return out, screen


SAFE_CALLS = [HEAD, opened(0, "get_weather"), more(0, arguments="{"), more(0, arguments="}")]


# --- what nobody guards ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "frames"),
    [
        ("openai_chat", [*SAFE_CALLS, opened(1, "read_file", "{}"), END, DONE]),
        ("openai_responses", list(responses.STREAMS["interleaved tool calls"])),
        ("anthropic_messages", list(messages.STREAMS["tool calls"])),
        ("gemini", list(gemini.STREAMS["tool calls"])),
    ],
    ids=["chat", "responses", "messages", "gemini"],
)
@pytest.mark.parametrize("tools", [(), ("format_disk",)], ids=["no rule", "another rule"])
def test_every_frame_goes_out_as_it_comes_where_no_rule_names_a_call(
    dialect: str, frames: list[bytes], tools: tuple[str, ...]
) -> None:
    out, screen = play(frames, Policy(GateSettings(tools=tools)), dialect)

    assert out == frames
    assert not screen.is_keeping


def test_texts_go_out_as_they_come_where_they_are_not_looked_at() -> None:
    frames = [HEAD, *text("Action:", " delete_rows\n", '{"action": "delete_rows"}'), END]
    out, _ = play(frames)
    assert out == frames


# --- calls ----------------------------------------------------------------------------------------


def test_frames_before_the_first_guarded_call_go_out_and_none_after_it() -> None:
    before = [HEAD, *text("Well. "), *SAFE_CALLS[1:]]
    after = [
        opened(1, "delete_rows"),
        more(1, arguments="{}"),
        opened(2, "get_weather", "{}"),
        *text("more"),
        b": still there\n\n",
        more(0, arguments=" "),
        END,
        DONE,
    ]

    out, screen = play([*before, *after])

    assert out == [*before, *[b""] * len(after)]
    assert screen.is_keeping
    assert screen.rest() == b"".join(after)
    assert not screen.is_keeping


def test_comments_keep_their_place() -> None:
    comment = b": hello\n\n"
    frames = [comment, HEAD, comment, opened(0, "delete"), comment, more(0, name="_logs"), comment]

    out, screen = play(frames)

    assert out[:3] == frames[:3]
    assert out[3:5] == [b"", b""]
    assert out[5] == b"".join(frames[3:6]), "let go together, in order"
    assert out[6] == comment
    assert not screen.is_keeping


def test_a_name_that_is_still_coming_is_kept_until_it_can_be_no_guarded_one() -> None:
    frames = [opened(0, "del"), more(0, name="ete_"), more(0, name="lo"), more(0, name="gs")]
    out, _ = play(frames)
    assert out == [b"", b"", b"".join(frames[:3]), frames[3]]

    frames = [opened(0, "del"), more(0, name="ete_"), more(0, name="rows"), more(0, arguments="{")]
    out, _ = play(frames)
    assert not any(out)


def test_the_next_call_shows_that_a_name_is_whole() -> None:
    frames = [opened(0, "delete", "{}"), opened(1, "get_weather"), more(1, arguments="{}")]
    out, _ = play(frames)
    assert out == [b"", b"".join(frames[:2]), frames[2]]


def test_a_name_that_grows_all_the_same_is_met_by_the_frame_that_makes_it_grow() -> None:
    frames = [opened(0, "delete"), opened(1, "get_weather", "{}"), more(0, name="_rows")]
    out, screen = play(frames)
    assert out == [b"", b"".join(frames[:2]), b""]
    assert screen.rest() == frames[2]


def test_a_call_that_has_no_name_yet_is_kept() -> None:
    """Nobody can say of it that it is none of the guarded ones."""
    frames = [more(0, arguments='{"city":'), more(0, arguments='"Oslo"}'), more(0, name="weather")]
    out, _ = play(frames)
    assert out == [b"", b"", b"".join(frames)]

    stream = list(responses.STREAMS["deltas alone"])
    at = next(at for at, raw in enumerate(stream) if b"function_call" in raw)
    named = next(at for at, raw in enumerate(stream) if b"get_weather" in raw)
    out, _ = play(stream, dialect="openai_responses")
    kept = [*[b""] * (named - at), b"".join(stream[at : named + 1])]
    assert out == [*stream[:at], *kept, *stream[named + 1 :]]


def test_a_call_that_comes_with_the_end_is_kept() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "delete_rows", "arguments": "{}"}}
    frames = [HEAD, *text("Well. "), frame({"tool_calls": [call]}, "tool_calls"), DONE]
    out, screen = play(frames)
    assert out == [*frames[:2], b"", b""]
    assert screen.rest() == b"".join(frames[2:])

    part = {"functionCall": {"name": "delete_rows", "args": {}}}
    whole = [gemini.event(gemini.candidate(part, reason="STOP"))]
    assert play(whole, dialect="gemini")[0] == [b""]


def test_one_choice_holds_up_the_others() -> None:
    """Frames keep their order: a client joins them by it."""
    held = opened(0, "delete_rows").replace(b'"index": 0, "delta"', b'"index": 1, "delta"')
    frames = [HEAD, *text("one"), held, *text("two"), *text("three", index=1)]
    out, _ = play(frames, choices=2)
    assert out == [HEAD, frames[1], b"", b"", b""]


def test_calls_of_the_provider_s_own_are_looked_at_by_their_type() -> None:
    policy = Policy(GateSettings(tools=("shell",)))
    shell = responses.SHELL
    frames = [*responses.stream(responses.added(0, shell), responses.done(0, shell))]
    out, _ = play(frames, policy, "openai_responses")
    assert out == [*frames[:2], b"", b""]


def test_where_all_calls_are_to_be_on_record_none_goes_out_before() -> None:
    frames = [HEAD, *text("Well. "), *SAFE_CALLS[1:], *text("Well. ")]
    out, screen = play(frames, Policy(GateSettings(tools=())), holds_calls=True)
    assert out == [*frames[:2], *[b""] * (len(frames) - 2)]
    assert screen.rest() == b"".join(frames[2:])


# --- texts ----------------------------------------------------------------------------------------

PROSE = (
    "I looked at the tool and its actions: all is well, so I'll take no action now. Names are "
    'things; "quotes" and `marks` too. A list:\n- one\n- two [2]\nif a < b: c = {1: 2}\n'
)


def letters(sent: str) -> Iterator[bytes]:
    for letter in sent:
        yield from text(letter)


def test_prose_that_is_looked_at_is_late_by_a_few_letters_only() -> None:
    out, _ = play(letters(PROSE + "." * 8), scans_text=True)
    sizes = [sum(map(len, out[: at + 1])) // len(text("a")[0]) for at in range(len(out))]
    lags = [at + 1 - size for at, size in enumerate(sizes)]

    assert max(lags) <= 24, "a word and what may stand before its colon"
    assert sum(lags) / len(lags) <= 4
    assert b"".join(out).count(b"content") >= len(PROSE)


@pytest.mark.parametrize(
    ("before", "spelled"),
    [
        ("Thought: so be it.\n", "Action: delete_rows\nAction Input: {}"),
        ("Well. ", '{"thought": "hm", "action": "delete_rows", "action_input": {}}'),
        ("Well. ", "<function=delete_rows>{}</function>"),
        ("", '[{"name": "delete_rows", "arguments": {}}]'),
    ],
)
def test_a_text_goes_out_up_to_where_a_call_begins(before: str, spelled: str) -> None:
    frames = list(letters(before + spelled + " and on"))
    out, screen = play(frames, scans_text=True)
    assert b"".join(out) == b"".join(letters(before))
    assert screen.rest() == b"".join(frames[len(before) :])


def test_a_piece_goes_out_whole_or_not_at_all() -> None:
    frames = text("Well. Act", "ion: get_weather\n", "Action Input: {}\nObservation: rain\n", "So.")
    out, _ = play(frames, scans_text=True)
    assert out[0] == b""
    assert b"".join(out) == b"".join(frames)


def test_each_choice_has_a_text_of_its_own() -> None:
    frames = [*text("Act"), *text("ion: delete_rows\n", index=1), *text("s. "), *text("Well. ")]
    out, _ = play(frames, choices=2, scans_text=True)
    assert b"".join(out) == b"".join(frames), "no choice says `Action:`"

    frames = [*text("Act"), *text("Well. ", index=1), *text("ion: delete_rows\n")]
    out, _ = play(frames, choices=2, scans_text=True)
    assert not any(out)


def test_texts_and_calls_are_looked_at_together() -> None:
    frames = [*text("Well. "), opened(0, "get_weather", "{}"), *text("Action: delete_rows\n"), END]
    out, _ = play(frames, scans_text=True)
    assert out == [*frames[:2], b"", b""]


# --- all of it ------------------------------------------------------------------------------------

DIALECTS = {
    "chat": "openai_chat",
    "completions": "openai_completions",
    "messages": "anthropic_messages",
    "gemini": "gemini",
    "responses": "openai_responses",
}


@given(case=cases(), holds_calls=st.booleans())
@settings(derandomize=True, deadline=None, database=None, max_examples=150)
def test_nothing_is_lost_nothing_moves_and_no_guarded_call_leaves(
    case: Case, holds_calls: bool
) -> None:
    check(case, holds_calls)


@pytest.mark.long
@given(case=cases(), holds_calls=st.booleans())
@settings(derandomize=True, deadline=None, database=None, max_examples=5_000)
def test_it_holds_in_many_more_ways(case: Case, holds_calls: bool) -> None:
    check(case, holds_calls)


def check(case: Case, holds_calls: bool) -> None:
    policy = Policy(GateSettings(tools=(TOOL, *BUILT_IN)))
    found = dialect_by_name(DIALECTS[case.label.partition(":")[0]])
    assert found is not None
    assembler = found.assembler(_count(case.request))
    screen = Screen(policy, scans_text=case.is_text, holds_calls=holds_calls)
    out = b""
    for one in SSEDecoder().feed(b"".join(case.events)):
        mark = assembler.feed(one)
        assert mark is not Mark.ERROR
        out += screen.take(one.raw, mark, assembler)
        assert case.open_bytes.startswith(out)
    assert out + screen.rest() == b"".join(case.events)


def _count(request: dict[str, Any]) -> int:
    config = request.get("generationConfig", {})
    count: Sequence[int] = [request.get("n", 1), config.get("candidateCount", 1)]
    return max(count)
