"""Lines of training data: what an example becomes, how a file is described, and that a large corpus
of odd conversations comes out as lines a trainer takes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.canonical import JSON
from agentstate.house import export
from agentstate.house.export import (
    MODELS_MAX,
    OTHER_MODELS,
    Line,
    Tally,
    filters_json,
    line_json,
    lines,
    make_line,
    part_of,
)
from agentstate.house.export_base import FORMATS, Example, Format, Wanted
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from tests.helpers.training_lines import faults, split_lines

KEY = "sk-" + "a1B2" * 10
USER: dict[str, JSON] = {"role": "user", "content": "hi"}
BYE: dict[str, JSON] = {"role": "assistant", "content": "hello"}


def example_of(*messages: dict[str, JSON], **changes: Any) -> Example:
    example = Example(
        session="s",
        index=0,
        root="r",
        messages=messages or (USER, BYE),
        tools=(),
        parallel_tool_calls=None,
        model="gpt-4o-mini",
        touched=False,
        cost_microusd=None,
    )
    return replace(example, **changes)


Give = Callable[[Iterable[Example]], None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Return what sets the examples that are on record."""

    def put(found: Iterable[Example]) -> None:
        async def examples(
            store: Store, wanted: Wanted, left_out: Counter[str] | None = None
        ) -> AsyncIterator[Example]:
            for each in found:
                yield each
            if left_out is not None:
                left_out["filter"] += 1

        monkeypatch.setattr(export, "examples", examples)

    return put


def read(wanted: Wanted, tally: Tally | None = None) -> list[Line]:
    async def collect() -> list[Line]:
        found = []
        counts = None if tally is None else tally.not_taken
        async for line in lines(MemoryStore(), wanted, counts):
            found.append(line)
            if tally is not None:
                tally.add(line)
        return found

    return asyncio.run(collect())


def test_an_example_is_one_line_of_ascii_that_ends_with_its_only_line_feed() -> None:
    said: dict[str, JSON] = {"role": "user", "content": "a\u2028b\u2029c\u0085d\re\n\u00e9"}

    line = make_line(example_of(said, BYE), Wanted())

    assert line.text is not None
    assert line.text.isascii()
    assert len(line.text.decode().splitlines()) == 1
    assert line.text.endswith(b"}\n")
    assert json.loads(line.text) == {"messages": [said, BYE]}
    assert all(escape in line.text for escape in (b"\\u2028", b"\\u2029", b"\\u0085"))


def test_a_secret_is_taken_out_before_the_linter_looks() -> None:
    line = make_line(example_of({"role": "user", "content": f"use {KEY}"}, BYE), Wanted())

    assert line.text is not None
    assert KEY.encode() not in line.text
    assert line.secrets == {"openai_key": 1}
    assert line.findings == ()


def test_a_line_that_cannot_be_saved_has_no_text_and_a_reason() -> None:
    line = make_line(example_of({"role": "critic", "content": "x"}, BYE), Wanted())

    assert line.text is None
    assert line.tokens == 0
    assert [finding.code for finding in line.findings] == ["role_unknown"]


def test_an_example_that_is_nested_beyond_reason_costs_itself_alone() -> None:
    deep: JSON = {}
    for _ in range(50_000):
        deep = {"properties": deep}
    tool: JSON = {"type": "function", "function": {"name": "f", "parameters": deep}}

    line = make_line(example_of(tools=(tool,)), Wanted())

    assert line.text is None
    assert [finding.code for finding in line.findings] == ["too_deep"]


def test_tokens_are_estimated_from_what_is_said() -> None:
    short = make_line(example_of(), Wanted())
    long = make_line(example_of({"role": "user", "content": "é" * 4000}, BYE), Wanted())

    assert 0 < short.tokens < 20
    assert long.tokens - short.tokens == pytest.approx(1000, abs=2)


def test_the_lines_are_those_of_the_examples_in_order(give: Give) -> None:
    give(example_of(index=number) for number in range(5))

    assert [line.index for line in read(Wanted())] == [0, 1, 2, 3, 4]


# -- split


ROOTS = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(2000)]


def test_the_parts_of_a_split_have_nothing_in_common_and_miss_nothing(give: Give) -> None:
    found = [example_of(root=root, index=at) for at, root in enumerate(ROOTS) for _ in (0, 1)]
    give(found)
    wanted = Wanted(split=(0.1, 7))

    train = [line.index for line in read(replace(wanted, part="train"))]
    validation = [line.index for line in read(replace(wanted, part="validation"))]
    both = read(wanted)

    assert sorted(train + validation) == [each.index for each in found]
    assert set(train).isdisjoint(validation)
    assert 0.08 < len(validation) / len(found) < 0.12
    assert [line.index for line in both if line.part == "validation"] == validation


def test_a_split_depends_on_root_share_and_seed_alone() -> None:
    def taken(share: float, seed: int) -> set[str]:
        return {root for root in ROOTS if part_of(root, share, seed) == "validation"}

    assert taken(0.1, 7) == taken(0.1, 7)
    assert taken(0.1, 7) != taken(0.1, 8)
    assert taken(0.1, 7) < taken(0.2, 7)  # a larger share takes none of them back


# -- what is said of a file


def test_a_manifest_describes_the_file(give: Give) -> None:
    broken = example_of({"role": "critic", "content": "x"}, BYE)
    named: dict[str, JSON] = {**USER, "name": "ann"}
    secret: dict[str, JSON] = {"role": "user", "content": KEY}
    give(
        [
            example_of(),
            example_of(named, BYE, session="t", touched=True),
            broken,
            example_of(secret, BYE, session="t", model="other"),
        ]
    )
    wanted = Wanted(model="*", session=None)
    tally = Tally(wanted)

    found = read(wanted, tally)

    data = b"".join(line.text for line in found if line.text is not None)
    manifest = tally.manifest()
    assert manifest["format"] == "openai"
    assert manifest["filters"] == filters_json(wanted)
    assert manifest["split"] is None
    assert manifest["files"] == {
        "all": {
            "lines": 3,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "tokens": sum(line.tokens for line in found),
        }
    }
    assert manifest["models"] == {"gpt-4o-mini": 2, "other": 1}
    assert manifest["secrets"] == {"openai_key": 1}
    assert manifest["findings"] == {
        "mended": {"key_removed": 1},
        "kept": {},
        "left_out": {"role_unknown": 1},
    }
    assert manifest["not_taken"] == {"filter": 1}
    counts = {name: manifest[name] for name in ("lines", "mended", "left_out", "touched")}
    assert counts == {"lines": 3, "mended": 1, "left_out": 1, "touched": 1}
    assert "characters" in str(manifest["tokens"])


def test_a_manifest_of_a_split_describes_both_files(give: Give) -> None:
    give(example_of(root=root) for root in ROOTS[:100])
    wanted = Wanted(split=(0.3, 1))
    tally = Tally(wanted)

    found = read(wanted, tally)

    files: Any = tally.manifest()["files"]
    assert list(files) == ["train", "validation"]
    for part, facts in files.items():
        data = b"".join(line.text or b"" for line in found if line.part == part)
        assert facts["sha256"] == hashlib.sha256(data).hexdigest()
        assert facts["lines"] == data.count(b"\n") > 0
    assert tally.manifest()["split"] == {"validation": 0.3, "seed": 1}


def test_models_without_number_are_counted_in_bounds() -> None:
    tally = Tally(Wanted())
    for number in range(MODELS_MAX + 50):
        tally.add(make_line(example_of(model=f"m{number}"), Wanted()))

    models: Any = tally.manifest()["models"]
    assert len(models) == MODELS_MAX + 1
    assert models[OTHER_MODELS] == 50


def test_what_is_said_of_a_line_is_none_of_its_content() -> None:
    said: dict[str, JSON] = {"role": "developer", "content": f"private {KEY}"}

    shown = line_json(make_line(example_of(said, BYE), Wanted()), 1)

    assert "private" not in json.dumps(shown)
    assert KEY not in json.dumps(shown)
    assert (shown["line"], shown["is_left_out"]) == (1, False)
    assert shown["secrets"] == {"openai_key": 1}


# -- a large corpus


ODD = '\u2028\u2029\u0085\ud83d\ude00\x00\t"\\{}é漢\U0001f600\ufeff\u202e'
NAMES = ("get_weather", "run", "fs.read", "send-mail")


def corpus(seed: int, count: int) -> Iterator[Example]:
    """Make conversations as agents have them: tools, parallel calls, cut ends, odd characters."""
    dice = random.Random(seed)

    def words() -> str:
        return "".join(
            dice.choice(ODD) if dice.random() < 0.05 else dice.choice("abc de\n")
            for _ in range(dice.randrange(40))
        )

    def arguments() -> str:
        if dice.random() < 0.02:
            return dice.choice(("", '{"a":', '{"a":NaN}', "[1]", '{"a":"x\ny"}', "null"))
        values = {words() or "k": dice.choice((words(), 10**20, 1.5, None, [words()], KEY))}
        return json.dumps(values, ensure_ascii=dice.random() < 0.5)

    def call(number: int) -> dict[str, JSON]:
        name = dice.choice(NAMES)
        return {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments()},
        }

    def turn(number: int) -> Iterator[dict[str, JSON]]:
        yield {"role": "user", "content": words() or "go on"}
        calls = [call(number * 10 + at) for at in range(dice.choice((0, 0, 1, 1, 2, 5)))]
        if not calls:
            yield {"role": "assistant", "content": words() or "yes"}
            return
        answer: dict[str, JSON] = {"role": "assistant", "content": dice.choice((None, words()))}
        listed: list[JSON] = list(calls)
        answer["tool_calls"] = listed
        if dice.random() < 0.1:
            answer["weight"] = 0
        yield answer
        dice.shuffle(calls)
        for each in calls:
            if dice.random() < 0.97:  # else the agent was killed, or forgot it
                yield {"role": "tool", "tool_call_id": each["id"], "content": words()}

    for at in range(count):
        messages: list[dict[str, JSON]] = []
        if dice.random() < 0.7:
            messages.append({"role": "system", "content": words()})
        for number in range(dice.randrange(1, 6)):
            messages += turn(number)
        last = call(99)
        messages += dice.choice(
            (
                [{"role": "assistant", "content": words() or "done"}],
                [{"role": "user", "content": "?"}],
                [{"role": "assistant", "content": None, "tool_calls": [last]}],
            )
        )
        if messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": "end"})
        offered: tuple[dict[str, JSON], ...] = tuple(
            {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
            for name in dice.sample(NAMES, dice.randrange(len(NAMES) + 1))
        )
        yield example_of(
            *messages,
            index=at,
            root=str(at % 50),
            tools=offered,
            parallel_tool_calls=dice.choice((None, True, False)),
            rejected=({"role": "assistant", "content": words() or "no"},),
            label=dice.random() < 0.5,
        )


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_every_line_of_a_large_corpus_keeps_the_rules(form: Format, give: Give) -> None:
    count = 1500
    give(corpus(seed=1, count=count))
    tally = Tally(Wanted(format=form))

    found = read(Wanted(format=form), tally)

    data = b"".join(line.text for line in found if line.text is not None)
    saved = split_lines(data)
    assert [(at, wrong) for at, raw in enumerate(saved) if (wrong := faults(raw, form))] == []
    assert KEY.encode() not in data
    assert len(found) == count
    # Broken arguments cost a line; hardly anything else does.
    assert len(saved) > 0.8 * count
    findings: Any = tally.counts()["findings"]
    assert set(findings["left_out"]) <= {
        "arguments_json", "arguments_type", "nothing_trained", "no_prompt", "pair_equal"
    }  # fmt: skip
    assert set(findings["mended"]) >= {"tool_added", "call_without_result"}


def test_what_is_said_survives_word_for_word(give: Give) -> None:
    said: dict[str, JSON] = {"role": "user", "content": ODD + "\ud800"}
    give([example_of(said, BYE)])

    [line] = read(Wanted())

    assert line.text is not None
    read_back = json.loads(line.text)["messages"][0]["content"]
    assert read_back == ODD.replace("\ud83d\ude00", "\U0001f600") + "\ud800"
