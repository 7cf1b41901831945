"""Events with what a model might write to look like something else, and strategies for more."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agentstate.ground.events import EVENT_KINDS, Event
from agentstate.webhooks.base import Links

LINKS = Links(
    dashboard="https://proxy.example/",
    session="https://proxy.example/#/sessions/nightly",
    approval="https://proxy.example/#/approvals/apr_1",
)
HOSTILE = (
    "<!channel>", "<!here|x>", "<@U0123456>", "<#C012>", "<https://evil.example|Decide>",
    "https://evil.example/a?b=c&d=<e>", "&lt;!channel&gt;", "&", "@everyone", "@here", "<@&123>",
    "<@123>", "[Decide](https://evil.example)", "```", "``", "`", "````", "```\n*Rule*\n```",
    "**bold**", "||spoiler||", "# head", "> quote", "\\", "\n", "\r\n", "\t", "   ", "\u00a0",
    "\u202e", "\u200b", "\u2066", "\x00", "\x1b[2J", "\ud83d", "\udc00", "\U0001f600", "\ufdfd",
    "\U000e0041", "e\u0301", ":skull:", "<t:0:R>", "<!date^0^{date}|x>", "{\"cmd\": \"rm -rf /\"}",
    "sk-abcdefghijklmnopqrstuvwxyz", "\u3164", "mailto:a@b.example", "#general",
)  # fmt: skip

pieces = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=12))
texts = st.builds(
    lambda parts, times: "".join(parts) * times,
    st.lists(pieces, max_size=6),
    st.sampled_from((1, 1, 3, 40, 1_200)),
)
values = st.one_of(
    texts, st.none(), st.booleans(), st.integers(), st.floats(), st.lists(texts, max_size=2)
)
FACTS = (
    "tool", "arguments", "arguments_are_edited", "rule", "why", "reason", "by", "then", "status",
    "model", "dialect", "deadline_ms", "call_id", "kind", "prompt", "error", "from_model",
    "to_model", "provider", "cap", "spent", "unheard_of",
)  # fmt: skip
facts = st.dictionaries(st.sampled_from(FACTS), values, max_size=len(FACTS))
full_facts = st.fixed_dictionaries(dict.fromkeys(FACTS, texts))
links = st.sampled_from((
    LINKS,
    Links(),
    Links(dashboard="http://localhost:8000/", session="http://localhost:8000/#/sessions/a"),
    Links(dashboard="https://p.example/", session="https://p.example/#/" + "%F0%9F%98%80" * 512),
))  # fmt: skip
events = st.builds(
    Event,
    event_id=st.just("evt_0123456789abcdef"),
    kind=st.sampled_from(EVENT_KINDS),
    session=texts.map(lambda text: text[:512]),
    created_ms=st.integers(0, 4_000_000_000_000),
    step_number=st.none() | st.integers(1, 2**31),
    approval_id=st.none() | st.just("apr_1"),
    facts=st.none() | facts | full_facts,
    is_sample=st.booleans(),
)


def event(kind: Any = "approval.required", /, session: str = "nightly", **facts: Any) -> Event:
    """Return an event with these facts, of step 4 at a fixed time."""
    return Event("evt_1", kind, session, 1_780_000_000_000, 4, 3, "apr_1", facts)
