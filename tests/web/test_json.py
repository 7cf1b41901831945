"""JSON as text: parts found where they are, and nothing changed but what is meant."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.browser import open_page
from tests.helpers.desk import Desk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

NAMES = ("a", "", "a b", '"', "\\", "__proto__", "é", "日本", "\u202e", "\U0001f600", "\ud800")
NUMBERS = ("0", "-0", "1.0", "1e5", "1E+05", "12345678901234567890123", "-0.10", "1e999")
SPACES = ("", " ", "\n", "\t\r\n  ")
SAMPLES = 300


@pytest.fixture(scope="module")
def module(browser: Browser) -> Iterator[Page]:
    """A page that has the module as `json`."""
    with Desk() as desk, open_page(browser, desk.url) as page:
        page.goto("")
        page.evaluate("async () => { window.json = await import('/dashboard/json.js'); }")
        yield page


class Writer:
    """Writes random JSON texts in random spellings."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def object(self, depth: int = 0) -> tuple[str, list[tuple[str, str]]]:
        """Return the text of an object and its members: name, text of the value."""
        members = [
            (self._random.choice(NAMES), self._value(depth + 1))
            for _ in range(self._random.randrange(5))
        ]
        space = self._space
        parts = [
            f"{space()}{self._string(name)}{space()}:{space()}{value}{space()}"
            for name, value in members
        ]
        return "{" + (",".join(parts) or space()) + "}", members

    def _value(self, depth: int) -> str:
        kind = self._random.randrange(6 if depth < 4 else 4)
        if kind == 0:
            return self._string(self._random.choice(NAMES))
        if kind == 1:
            return self._random.choice(NUMBERS)
        if kind in (2, 3):
            return self._random.choice(("true", "false", "null"))
        if kind == 4:
            return self.object(depth)[0]
        values = [self._space() + self._value(depth + 1) for _ in range(self._random.randrange(4))]
        return "[" + (",".join(values) or self._space()) + "]"

    def _string(self, text: str) -> str:
        is_ascii = self._random.random() < 0.5 or "\ud800" in text
        return json.dumps(text, ensure_ascii=is_ascii)

    def _space(self) -> str:
        return self._random.choice(SPACES)


def exact(text: str) -> Any:
    """Read JSON so that numbers compare by their spelling, and members in order."""
    return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=tuple)


def test_members_are_found_with_the_text_of_their_values(module: Page) -> None:
    writer = Writer(1)
    written = [writer.object() for _ in range(SAMPLES)]

    found = module.evaluate(
        """texts => texts.map(text => json.readMembers(text).map(
             ({name, source, start, end}) => [name, source, text.slice(start, end) === source]))""",
        [text for text, _ in written],
    )

    wanted = [[[name, value, True] for name, value in members] for _, members in written]
    assert found == wanted


def test_indenting_and_normalizing_say_the_same_as_before(module: Page) -> None:
    writer = Writer(2)
    texts = [text for text, _ in (writer.object() for _ in range(SAMPLES))]

    made = module.evaluate(
        "texts => texts.map(text => [json.indent(text), json.normalize(text)])", texts
    )

    assert [exact(indented) for indented, _ in made] == [exact(text) for text in texts]
    assert [exact(normal) for _, normal in made] == [exact(text) for text in texts]
    again = module.evaluate(
        "texts => texts.map(text => json.normalize(text))", [indented for indented, _ in made]
    )
    assert again == [normal for _, normal in made], "one spelling for all that say the same"


def test_a_replaced_value_leaves_the_rest_as_it_was(module: Page) -> None:
    writer = Writer(3)
    written = [each for each in (writer.object() for _ in range(SAMPLES)) if each[1]]

    made = module.evaluate(
        """texts => texts.map(text => {
             const members = json.readMembers(text);
             return [json.replaceValues(text, [[members.at(-1), '"new"']]),
                     json.replaceValues(text, members.map(member => [member, member.source]))];
           })""",
        [text for text, _ in written],
    )

    for (text, members), (replaced, same) in zip(written, made, strict=True):
        before = text[: text.rindex(members[-1][1])]
        assert same == text
        assert replaced.startswith(before + '"new"')
        assert exact(replaced) == (*exact(text)[:-1], (exact(text)[-1][0], "new"))


def test_an_indented_text_reads_like_written_by_hand(module: Page) -> None:
    text = '{"a":1,"b":[],"c":{},"d":[1,{"e":"x\u202ey"}]}'

    assert module.evaluate("text => json.indent(text)", text) == (
        '{\n  "a": 1,\n  "b": [],\n  "c": {},\n  "d": [\n    1,\n    {\n'
        '      "e": "x\\u202ey"\n    }\n  ]\n}'
    )


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"', "1", "null", "{'a': 1}", "{} {}", "[{}]"])
def test_what_is_no_object_has_no_members(module: Page, text: str) -> None:
    assert module.evaluate("text => json.readMembers(text)", text) is None


@pytest.mark.parametrize(
    ("text", "is_number"),
    [
        ("0", True), ("-1.50", True), ("1e5", True), ("12345678901234567890", True),
        ("", False), ("01", False), ("1.", False), (".5", False), ("+1", False),
        ("1,5", False), ("0x1", False), ("NaN", False), ("1 2", False),
    ],
)  # fmt: skip
def test_numbers_are_those_of_json(module: Page, text: str, is_number: bool) -> None:
    assert module.evaluate("text => json.isNumber(text)", text) is is_number


def test_megabytes_of_one_string_are_read(module: Page) -> None:
    length = module.evaluate(
        """() => {
             const text = JSON.stringify({a: '\\\\"x'.repeat(1_000_000)});
             return json.normalize(text).length - text.length;
           }"""
    )

    assert length == 0


def test_a_list_that_comes_in_pieces_is_taken_apart(module: Page) -> None:
    items = [{"a": 'x"]}\\', "b": [{"c": 1}]}, {}, {"q": '"lines":[{'}]
    head = {"filters": {"search": '"lines":[{"a": 1}]'}}
    text = f'{json.dumps(head)[:-1]},"lines":{json.dumps(items)},"counts":{{"lines": [[1]]}}}}'
    found = module.evaluate(
        """text => {
            const found = [];
            for (let at = 0; at <= text.length; at += 1) {
              const scan = json.listScanner("lines");
              found.push([...scan(text.slice(0, at)), ...scan(text.slice(at))]);
            }
            const scan = json.listScanner("lines");
            found.push([...text].flatMap((sign) => scan(sign)));
            return found;
        }""",
        text,
    )
    assert len(found) == len(text) + 2
    for each in found:
        assert [json.loads(one) for one in each] == items
