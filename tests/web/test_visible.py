"""What a font hides is shown, and shown text can be turned back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from agentstate.ground.visible import visible
from tests.helpers.browser import expect, open_page
from tests.helpers.desk import Desk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def module(browser: Browser) -> Iterator[Page]:
    """A page that has the module as `it`."""
    with Desk() as desk, open_page(browser, desk.url) as page:
        page.goto("")
        page.evaluate("async () => { window.it = await import('/dashboard/visible.js'); }")
        yield page


HIDDEN = {
    "a control": ("a\0b", "a⟨U+0000⟩b"),
    "a carriage return": ("a\rb", "a⟨U+000D⟩b"),
    "escape": ("\x1b[31m", "⟨U+001B⟩[31m"),
    "a C1 control": ("\x85", "⟨U+0085⟩"),
    "an override": ("evil\u202etxt.exe", "evil⟨U+202E⟩txt.exe"),
    "an isolate": ("\u2066x\u2069", "⟨U+2066⟩x⟨U+2069⟩"),
    "zero width": ("a\u200bb\u2060c\ufeff", "a⟨U+200B⟩b⟨U+2060⟩c⟨U+FEFF⟩"),
    "a soft hyphen": ("a\xadb", "a⟨U+00AD⟩b"),
    "a tag": ("a\U000e0041", "a⟨U+E0041⟩"),
    "a filler": ("a\u3164b\u115fc", "a⟨U+3164⟩b⟨U+115F⟩c"),
    "a blank": ("a\u2800b", "a⟨U+2800⟩b"),
    "a line separator": ("a\u2028b\u2029", "a⟨U+2028⟩b⟨U+2029⟩"),
    "private use": ("a\ue000", "a⟨U+E000⟩"),
    "a selector on a letter": ("a\ufe0f", "a⟨U+FE0F⟩"),
    "a joiner between letters": ("a\u200db", "a⟨U+200D⟩b"),
}
PLAIN = [
    "", "plain ASCII ~ text", "line\nline\ttab", "naïve café", "日本語", "עברית", "العربية", "ไทย",
    "❤️ 👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 0️⃣ 👍🏽",
    "rm\u00a0-rf", "e\u0301", "\U0001d518\U0001d52b\U0001d526",
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), HIDDEN.values(), ids=HIDDEN.keys())
def test_hidden_characters_are_shown_by_their_number(module: Page, text: str, shown: str) -> None:
    assert module.evaluate("text => it.visible(text)", text) == shown
    assert visible(text) == shown, "as the API shows it"
    assert module.evaluate("text => it.hasHidden(text)", text) is True
    assert module.evaluate("text => it.unmark(it.visible(text)) === text", text) is True


@pytest.mark.parametrize("text", PLAIN)
def test_what_can_be_seen_stays_as_it_is(module: Page, text: str) -> None:
    assert module.evaluate("text => it.visible(text)", text) == text
    assert module.evaluate("text => it.hasHidden(text)", text) is False


def test_half_a_pair_is_shown(module: Page) -> None:
    assert module.evaluate("() => it.visible('a\\ud800b\\udc00')") == "a⟨U+D800⟩b⟨U+DC00⟩"


def test_escaping_hides_nothing_and_keeps_the_value(module: Page) -> None:
    same = module.evaluate(
        """texts => texts.map(text => {
             const source = it.escapeHidden(JSON.stringify(text));
             return !it.hasHidden(source) && JSON.parse(source) === text;
           })""",
        [text for text, _ in HIDDEN.values()] + PLAIN,
    )

    assert all(same)


@pytest.mark.parametrize("text", ["⟨U+202E⟩", "⟨U+110000⟩", "⟨U+12⟩", "⟨U+200b⟩"])
def test_a_mark_that_stood_in_the_text_is_noticed_or_left(module: Page, text: str) -> None:
    """The first would become a character: a caller that compares sees it. The rest are no marks."""
    is_mark = text == "⟨U+202E⟩"

    assert module.evaluate("text => it.unmark(it.visible(text)) === text", text) is not is_mark


def test_letters_that_pass_for_others_are_named(module: Page) -> None:
    look = "name => it.lookalikes(name)"

    assert module.evaluate(look, "send_email") == []
    assert module.evaluate(look, "s\u0435nd_\u0435mail") == ["\u0435 is U+0435"]
    assert module.evaluate(look, "send\u00a0email") == ["\u00a0 is U+00A0"]
    assert module.evaluate(look, "send\u200b_email") == [], "shown by its number already"


def test_a_fold_is_not_between_the_halves_of_a_character(module: Page) -> None:
    shown = module.evaluate(
        """async () => {
          const { longText } = await import('/dashboard/parts/text.js');
          const node = longText('a' + '😀'.repeat(200_000), { first: 4000 });
          const folded = node.querySelector('pre').textContent;
          node.querySelector('button').click();
          const more = node.querySelector('pre').textContent;
          return [folded.length, more.length, (folded + more).includes('⟨')];
        }"""
    )
    assert shown == [3999, 203999, False]


def test_the_name_of_a_session_hides_nothing_in_a_title(browser: Browser) -> None:
    with Desk() as desk, open_page(browser, desk.url) as page:
        desk.hold(session="evil\u202etxt")
        page.goto("#/sessions")
        row = page.locator(".row-link")
        expect(row).to_have_attribute("title", "evil⟨U+202E⟩txt")
        row.click()
        expect(page).to_have_title("(1) evil⟨U+202E⟩txt · AgentState")
