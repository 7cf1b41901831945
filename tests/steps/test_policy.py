"""The policy: who is asked about what, whatever the spelling, and what a stream may let go."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.ground.errors import SettingError
from agentstate.ground.settings import GateSettings, RuleSettings
from agentstate.steps.names import NAME_CHARS_MAX
from agentstate.steps.policy import NAME_READ_CHARS_MAX, Policy, Verdict
from tests.steps.test_names import SPELLINGS, WIDE

Rule = RuleSettings
PASSES = Verdict("allow", "", "")


def policy(*rules: Rule, tools: tuple[str, ...] = ()) -> Policy:
    return Policy(GateSettings(tools=tools, rules=rules))


def action(
    judge: Policy, name: str = "pay", arguments: object = "{}", kind: str = "function"
) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return judge.judge(name, text, kind).action


# -- which rule decides


def test_by_default_four_tools_are_asked_about() -> None:
    judge = Policy(GateSettings())

    for tool in ("send_email", "execute_command", "delete_database", "stripe_charge"):
        assert judge.judge(tool, "{}", "function") == Verdict("ask", f"gate.tools: {tool}", "")
    assert judge.judge("get_weather", "{}", "function") == PASSES


@pytest.mark.parametrize(
    ("actions", "decides"),
    [
        (("ask", "deny", "allow"), 2),
        (("allow", "ask"), 2),
        (("allow", "deny"), 2),
        (("allow", "allow"), 1),
        (("ask", "ask"), 1),
        (("deny", "deny"), 1),
    ],
)
def test_deny_beats_ask_beats_allow_and_the_first_of_its_kind_decides(
    actions: tuple[str, ...], decides: int
) -> None:
    rules = [Rule(tool="pay", action=each) for each in actions]  # type: ignore[arg-type]

    verdict = policy(*rules, tools=("pay",)).judge("pay", "{}", "function")

    assert verdict == Verdict(rules[decides - 1].action, f"gate.rule {decides}: pay", "")


def test_a_rule_that_does_not_match_leaves_it_to_gate_tools() -> None:
    judge = policy(Rule(tool="pay", when="args.a > 5", action="allow"), tools=("p*",))

    assert judge.judge("pay", '{"a": 5}', "function") == Verdict("ask", "gate.tools: p*", "")
    assert action(judge, arguments={"a": 6}) == "allow"
    assert action(judge, "get") == "allow"


def test_a_verdict_says_what_its_rule_says() -> None:
    judge = policy(
        Rule(tool="pay", when="args.a > 5", action="deny", then="continue", reason="too much")
    )

    assert judge.judge("pay", '{"a": 6}', "function") == Verdict(
        "deny", "gate.rule 1: pay when args.a > 5", "", "continue", "too much"
    )


def test_with_no_rule_and_no_tool_all_passes() -> None:
    judge = policy()

    assert judge.is_empty
    for name in ("send_email", "", "x" * 5000):
        assert judge.judge(name, "{", "function") == PASSES
        assert not judge.could_hold(name)
        assert not judge.could_become(name)
    assert not judge.is_named_in(b'{"a": "send_email \\u0073"}')


@pytest.mark.parametrize(
    "rule", [Rule(tool="[a"), Rule(when="args.a"), Rule(tool="a", when="args.a matches '('")]
)
def test_an_odd_rule_is_refused(rule: Rule) -> None:
    with pytest.raises(SettingError):
        policy(rule)


# -- names


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("rule", [Rule(tool="send_email"), Rule(tool="Send-*l"), None])
def test_a_guarded_tool_is_asked_about_in_every_spelling(name: str, rule: Rule | None) -> None:
    judge = policy(tools=("SEND_EMAIL",)) if rule is None else policy(rule)

    assert action(judge, name) == "ask"
    assert judge.could_hold(name)


@pytest.mark.parametrize("name", ["get-x", "getget", "get.x", "`get`", WIDE])
def test_a_rule_that_allows_knows_the_plain_spelling_alone(name: str) -> None:
    judge = policy(
        Rule(tool="get_x", action="allow"),
        Rule(tool="get", action="allow"),
        Rule(tool="send_email", action="allow"),
        tools=("*",),
    )

    assert action(judge, name) == "ask"
    assert action(judge, "Get_X ") == "allow"
    assert action(judge, "mcp__a__get_x") == "allow"


@pytest.mark.parametrize("name", ["", " ", "\u200b"])
def test_a_call_that_names_no_tool_is_asked_about(name: str) -> None:
    judge = policy(Rule(tool="get*", action="allow"), tools=("pay",))

    assert judge.judge(name, "{}", "function") == Verdict("ask", "gate", "The call names no tool.")
    assert judge.could_hold(name)
    assert judge.could_become(name)
    assert action(policy(Rule(action="deny")), name) == "deny"


def test_a_name_longer_than_any_is_asked_about() -> None:
    judge = policy(Rule(tool="*", action="allow"))
    name = "x" * (NAME_CHARS_MAX + 1)

    verdict = judge.judge(name, "{}", "function")

    assert (verdict.action, verdict.rule) == ("ask", "gate.rule 1: *")
    assert verdict.why == "The name of the tool has 257 characters, more than any name."
    assert judge.could_hold(name)
    assert judge.could_become(name)
    assert action(policy(Rule(tool="*x", action="deny")), name) == "deny"


@pytest.mark.parametrize("name", ["", "x" * (NAME_CHARS_MAX + 1)])
def test_in_a_text_what_is_no_name_is_no_call(name: str) -> None:
    judge = policy(tools=("pay",))

    assert judge.judge(name, "", "text") == PASSES
    assert not judge.could_hold(name, "text")


def test_a_long_name_is_read_up_to_a_length_and_then_asked_about_unread() -> None:
    judge = policy(tools=("pay",))
    padded = "pay" + "\u200b" * (NAME_READ_CHARS_MAX - 3)

    assert judge.judge(padded, "", "text").why == ""
    assert judge.judge(padded, "", "function").rule == "gate.tools: pay"
    assert action(judge, padded + "x", "", "text") == "ask"
    assert action(judge, "x" * 1_000_000, "{}") == "ask"


@pytest.mark.parametrize(
    "kind", ["local_shell_call", "shell_call", "apply_patch_call", "computer_call"]
)
@pytest.mark.parametrize("suffix", ["", "_call"])
def test_a_built_in_tool_is_known_by_its_type_with_and_without_call(kind: str, suffix: str) -> None:
    tool = kind.removesuffix("_call") + suffix
    judge = policy(tools=(tool,))

    assert action(judge, kind, '{"command": ["ls"]}', kind) == "ask"
    assert judge.could_hold(kind)
    assert judge.could_hold(kind.removesuffix("_call"))  # as it is offered
    assert judge.could_become(kind[:-1])
    assert action(policy(Rule(tool=tool, action="allow"), tools=("*",)), kind, kind=kind) == "allow"


def test_a_function_is_not_taken_for_a_built_in_tool() -> None:
    assert action(policy(tools=("phone",)), "phone_call") == "allow"


def test_an_approval_request_is_known_by_its_type_and_by_its_tool() -> None:
    kind = "mcp_approval_request"
    by_type = policy(tools=(kind,))
    by_name = policy(tools=("wipe",))

    assert action(by_type, "wipe", "{}", kind) == "ask"
    assert action(by_name, "wipe", "{}", kind) == "ask"
    # A stream shows the name before anybody knows the type.
    assert by_type.could_hold("anything")
    assert not by_type.could_hold("anything", "function")
    assert not by_name.could_hold("anything")


def test_a_glob_means_names_and_not_types() -> None:
    judge = policy(Rule(tool="mcp_*", action="allow"), tools=("wipe",))

    assert action(judge, "wipe", "{}", "mcp_approval_request") == "ask"
    assert not policy(tools=("mcp_*",)).could_hold("wipe")


# -- arguments


WHEN = "args.amount > 5000"


@pytest.mark.parametrize(
    ("amount", "allow", "ask", "deny"),
    [
        (5001, "allow", "ask", "deny"),
        (5000, "tools", "allow", "allow"),
        ("9000", "tools", "ask", "ask"),
        (True, "tools", "ask", "ask"),
        ([9000], "tools", "ask", "ask"),
        (None, "tools", "allow", "allow"),
    ],
)
def test_where_it_cannot_be_told_a_person_is_asked(
    amount: object, allow: str, ask: str, deny: str
) -> None:
    arguments = json.dumps({"amount": amount})

    allowing = policy(Rule(tool="pay", when=WHEN, action="allow"), tools=("pay",))
    verdict = allowing.judge("pay", arguments, "function")
    assert ("tools" if verdict.rule == "gate.tools: pay" else verdict.action) == allow
    assert action(policy(Rule(tool="pay", when=WHEN, action="ask")), "pay", arguments) == ask
    assert action(policy(Rule(tool="pay", when=WHEN, action="deny")), "pay", arguments) == deny


def test_a_doubt_is_told_and_a_rule_without_one_is_told_first() -> None:
    doubtful, plain = Rule(tool="pay", when=WHEN, action="deny"), Rule(tool="pay")

    assert policy(doubtful).judge("pay", '{"amount": "9000"}', "function") == Verdict(
        "ask",
        "gate.rule 1: pay when args.amount > 5000",
        "From these arguments it cannot be told whether args.amount > 5000.",
    )
    both = policy(doubtful, plain).judge("pay", '{"amount": "9000"}', "function")
    assert both == Verdict("ask", "gate.rule 2: pay", "")


def test_what_is_missing_does_not_allow() -> None:
    judge = policy(Rule(tool="pay", when="args.env != 'prod'", action="allow"), tools=("pay",))

    assert action(judge, arguments={}) == "ask"
    assert action(judge, arguments={"env": None}) == "ask"
    assert action(judge, arguments={"env": "dev"}) == "allow"


MALFORMED = ["{", "null", "[]", '{"a": 1, "a": 2}', "{'a': 1}", '{"a":' * 100_000, '{"a": NaN}']


@pytest.mark.parametrize("arguments", MALFORMED)
def test_malformed_arguments_are_always_asked_about(arguments: str) -> None:
    for each in (
        policy(tools=("pay",)),
        policy(Rule(tool="pay", action="allow")),
        policy(Rule(tool="pay", when=WHEN, action="ask")),
        policy(Rule(tool="pay", when=WHEN, action="deny")),
    ):
        verdict = each.judge("pay", arguments, "function")
        assert verdict.action == "ask"
        assert verdict.why.startswith("The arguments ")
        assert verdict.rule.endswith(("pay", WHEN))
    assert action(policy(Rule(tool="pay", action="deny")), "pay", arguments) == "deny"
    assert action(policy(Rule(tool="other")), "pay", arguments) == "allow"


def test_no_arguments_are_none() -> None:
    judge = policy(Rule(tool="pay", when=WHEN))

    assert action(judge, arguments="") == "allow"
    assert action(policy(Rule(tool="pay", action="allow"), tools=("pay",)), arguments="") == "allow"


@pytest.mark.parametrize("kind", ["custom", "text"])
def test_free_text_is_seen_as_input(kind: str) -> None:
    judge = policy(Rule(tool="sh", when="args.input matches 'rm '", action="deny"))
    opens = policy(Rule(tool="sh", when="args.input matches '^ls'", action="allow"), tools=("sh",))

    assert action(judge, "sh", "rm -rf /", kind) == "deny"
    assert action(judge, "sh", "ls", kind) == "allow"
    assert action(judge, "sh", "{", kind) == "allow"
    assert action(opens, "sh", "ls -l", kind) == "allow"
    assert action(opens, "sh", "rm", kind) == "ask"


@pytest.mark.parametrize("kind", ["custom", "text"])
def test_rules_that_guard_look_into_free_text_that_is_an_object(kind: str) -> None:
    judge = policy(Rule(tool="pay", when=WHEN, action="deny"))

    assert action(judge, "pay", {"amount": 9000}, kind) == "deny"
    assert action(judge, "pay", {"amount": 5}, kind) == "allow"
    assert action(judge, "pay", "amount=9000", kind) == "ask"
    assert action(judge, "pay", "{'amount': 9000}", kind) == "ask"
    assert action(judge, "pay", '{"amount": 1, "amount": 9000}', kind) == "ask"


def test_an_object_in_free_text_allows_nothing() -> None:
    judge = policy(
        Rule(tool="sh", when="args.input == 'ls' and args.safe == true", action="allow"),
        tools=("sh",),
    )

    assert action(judge, "sh", {"input": "ls", "safe": True}, "custom") == "ask"


# -- while a name arrives


GUARDS = (
    policy(tools=("send_email",)),
    policy(Rule(tool="Send-E*")),
    policy(Rule(tool="*_email", action="deny", when=WHEN)),
    policy(Rule(tool="send_?[a-m]ail"), tools=("pay",)),
    policy(Rule(tool="send_email", when=WHEN, action="allow"), tools=("*",)),
)


@pytest.mark.parametrize("name", [*SPELLINGS, "send_email_call", "x.send_email_call"])
@pytest.mark.parametrize("judge", GUARDS)
def test_no_beginning_of_a_guarded_name_is_let_go(judge: Policy, name: str) -> None:
    start = max(0, *(name.rfind(mark) + len(mark) for mark in ("__", ".", "/", ":")))
    for length in range(start, len(name)):
        so_far = name[:length]
        assert judge.could_hold(so_far) or judge.could_become(so_far), so_far


@pytest.mark.parametrize("name", ["get_weather", "resend", "sent", "mcp__mail__list", "files.read"])
def test_other_names_are_let_go(name: str) -> None:
    judge = policy(tools=("send_email", "stripe_*"))

    assert not judge.could_hold(name)
    assert not judge.could_become(name)


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("", True),
        ("s", True),
        ("send_", True),
        ("Send ", True),
        ("send_email", False),
        ("send_emailx", False),
        ("send_emails", True),  # and then doubled, as some streams make it
        ("send_emailsen", True),
        ("send_email_ca", True),
        ("mcp__", True),
        ("mcp__mail__se", True),
        ("mcp__mail_", False),
        ("functions.", True),
        ("strip", True),
        ("stripe_charge", True),
        ("get", False),
    ],
)
def test_a_name_that_is_arriving(name: str, becomes: bool) -> None:
    assert policy(tools=("send_email", "stripe_*")).could_become(name) is becomes


pieces = st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]"])
some_globs = st.lists(pieces, min_size=1, max_size=3).map("".join)
ENDS = ["".join(end) for length in range(1, 4) for end in product("abc_", repeat=length)]


@settings(derandomize=True, deadline=None, database=None)
@given(
    globs=st.lists(some_globs, min_size=1, max_size=2),
    name=st.text("ab_c", min_size=1, max_size=4).filter(lambda name: "__" not in name),
)
def test_what_could_become_guarded_is_what_some_end_makes_guarded(
    globs: list[str], name: str
) -> None:
    judge = policy(*(Rule(tool=glob) for glob in globs))
    longer = [name + end for end in ENDS if "__" not in name + end]

    if any(judge.could_hold(each) for each in longer):
        assert judge.could_become(name) or judge.could_hold(name)
    if judge.could_become(name):
        # Three characters are enough for every glob here, but not to double a name.
        doubled = [name + name[:1] for name in longer] + [name * 2, *(end * 2 for end in ENDS)]
        calls = [each + "_call" for each in (name, *longer)]
        stems = [name[: -len(end)] + "_call" for end in ("_", "_c") if name.endswith(end)]
        tried = [*longer, *doubled, *calls, *stems]
        assert any(judge.could_hold(each) for each in tried if each != name)


# -- what a request names


BODY = b'{"tools":[{"type":"function","function":{"name":"%b"}}],"messages":[]}'


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("send_email", b"send_email"),
        ("send_email", b"Send_Email"),
        ("send_email", b"send-email"),
        ("send_email", b"Send Email"),
        ("send_email", b"\\u0073end\\u005fEmail"),
        ("send_email", b"\\u0053\\u0045ND\\u002Demail"),
        ("send_email", b"functions.send_email"),
        ("Send-Email", b"send_email"),
        ("stripe_*", b"stripe_charge"),
        ("*_email", b"my_email"),
        ("delete_*_table", b"delete_my_table"),
        ("files/write", b"files\\/write"),
        ("shell_call", b"shell"),
        ("l\u00f6schen", b"l\\u00f6schen"),
        ("l\u00f6schen", "l\u00f6schen".encode()),
        ("\u53d1\u9001", b"anything"),
        ("*", b"anything"),
        ("a*", b"anything"),
        ("?[a-z]", b"anything"),
        ("rm", b"rm"),
    ],
)
def test_a_guarded_tool_is_found_in_a_request(tool: str, name: bytes) -> None:
    assert policy(tools=(tool,)).is_named_in(BODY % name)
    assert policy(Rule(tool=tool, action="deny")).is_named_in(BODY % name)


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("send_email", b"send_mail"),
        ("send_email", b"\\u0073end_mail"),
        ("stripe_*", b"strip_charge"),
        ("delete_*_table", b"delete_my_row"),
        ("files/write", b"files\\/read"),
    ],
)
def test_other_tools_are_not(tool: str, name: bytes) -> None:
    assert not policy(tools=(tool,)).is_named_in(BODY % name)


def test_a_tool_that_a_rule_allows_is_not_guarded() -> None:
    assert not policy(Rule(tool="send_email", action="allow")).is_named_in(BODY % b"send_email")


# -- what an approval is bound to


def test_a_digest_is_of_name_and_meaning() -> None:
    digest = policy().digest_of

    assert len(digest("pay", "{}")) == 32
    assert digest("pay", '{"a": 1, "b": [2]}') == digest("pay", '{"b":[2],"a":1}')
    assert digest("pay", "") == digest("pay", "{}")
    different = [
        digest(name, arguments)
        for name, arguments in [
            ("pay", "{}"), ("Pay", "{}"), ("pay", '{"a": 1}'), ("pay", '{"a": 1.0}'),
            ("pay", '{"a": true}'), ("pay", '{"a": "1"}'), ("pay", '"a"'), ("pay", "a"),
            ("pay", "{"), ("pay", "{ "), ("pay", '{"a": 1, "a": 1}'), ("pay", '{"a": "\ud83d"}'),
            ("pay{}", ""), ("\ud83d", "{}"), ("pay", "[" * 100_000),
        ]
    ]  # fmt: skip
    assert len(set(different)) == len(different)
