"""The verdicts on providers, from what they answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, get_args

import pytest

from agentstate.ground.load import load_settings
from agentstate.house import doctor_providers as providers
from agentstate.house.doctor_seen import (
    AnswerSeen,
    CertificatesSeen,
    Failure,
    Finding,
    ProxiesSeen,
    Seen,
    Subject,
)

KEY = "sk-proj-0123456789abcdefghij"
MINE = '[[provider]]\nname = "mine"\nbase_url = "https://models.corp/v1"\n'
KEYED = MINE + f'api_key = "{KEY}"\n'
GOOD = AnswerSeen(status=200, media_type="application/json", took_ms=12)
UNKNOWN = AnswerSeen(status=401, media_type="application/json")
GONE = AnswerSeen("refused", "refused")


class Look(Protocol):
    def __call__(
        self,
        toml: str = "",
        answers: Mapping[str, AnswerSeen] | None = None,
        environ: Mapping[str, str] | None = None,
        is_offline: bool = False,
    ) -> Seen: ...


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Make what was seen, of a file, answers, and an environment."""

    def make(
        toml: str = "",
        answers: Mapping[str, AnswerSeen] | None = None,
        environ: Mapping[str, str] | None = None,
        is_offline: bool = False,
    ) -> Seen:
        (tmp_path / "agentstate.toml").write_text(toml)
        loaded = load_settings({}, environ or {}, tmp_path, None)
        subject = Subject("1.0", environ or {}, "", loaded, None, is_offline)
        return Seen(subject, (3, 12, 1), CertificatesSeen(""), ProxiesSeen(), answers=answers or {})

    return make


def one(findings: Iterable[Finding], check: str) -> Finding:
    [finding] = [each for each in findings if each.check == check]
    return finding


# -- base URLs


def test_a_base_url_that_was_exported_for_the_agent_is_a_warning(look: Look) -> None:
    environ = {"OPENAI_BASE_URL": "http://localhost:8080/v1"}
    [finding] = providers.judge_base_urls(look(environ=environ))

    assert finding.state == "warn"
    assert "this server's own address" in finding.found
    assert "unset OPENAI_BASE_URL" in (finding.advice or "")


def test_a_base_url_that_leads_to_a_server_of_ours_is_a_fault(look: Look) -> None:
    seen = look(MINE, {"mine": AnswerSeen(status=508, is_loop=True)})
    [finding] = providers.judge_base_urls(seen)

    assert (finding.state, "AgentState server" in finding.found) == ("fault", True)
    assert "agentstate.toml:3" in (finding.advice or "")
    assert all(each.check != "upstream mine" for each in providers.judge_upstreams(seen))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/models"])
def test_a_base_url_that_holds_an_endpoint_is_a_fault(look: Look, path: str) -> None:
    toml = f'[[provider]]\nname = "mine"\nbase_url = "https://models.corp{path}"'
    [finding] = providers.judge_base_urls(look(toml))

    assert (finding.state, "endpoint's path" in finding.found) == ("fault", True)


def test_base_urls_as_they_should_be(look: Look) -> None:
    assert [each.state for each in providers.judge_base_urls(look(MINE))] == ["ok"]


# -- upstreams


@pytest.mark.parametrize(
    ("answer", "state", "found"),
    [
        (GOOD, "ok", "https://models.corp/v1 answers in 12 ms"),
        (UNKNOWN, "ok", "answers in"),
        (AnswerSeen(status=429), "ok", "answers in"),
        (AnswerSeen(status=400, blames_key=True), "ok", "answers in"),
        (AnswerSeen(status=403, media_type="text/html"), "fault", "with a web page"),
        (AnswerSeen(status=407, via="proxy:1"), "fault", "through the proxy proxy:1 answers 407"),
        (AnswerSeen(status=404), "warn", "answers 404 to its list of models"),
        (AnswerSeen(status=302), "warn", "answers 302 to its list of models"),
        (AnswerSeen(status=503), "warn", "answers 503"),
        (AnswerSeen(status=200, media_type="text/html"), "warn", "with text/html, which is no"),
        (AnswerSeen(status=200), "warn", "with nothing, which is no list"),
    ],
)
def test_an_answer(look: Look, answer: AnswerSeen, state: str, found: str) -> None:
    finding = one(providers.judge_upstreams(look(MINE, {"mine": answer})), "upstream mine")

    assert (finding.state, found in finding.found) == (state, True), finding
    assert (finding.advice is None) == (state == "ok")


@pytest.mark.parametrize("failure", get_args(Failure))
def test_every_failure_has_words_and_advice_of_its_own(look: Look, failure: Failure) -> None:
    seen = look(MINE, {"mine": AnswerSeen(failure, "detail")})
    finding = one(providers.judge_upstreams(seen), "upstream mine")
    others = {
        one(
            providers.judge_upstreams(look(MINE, {"mine": AnswerSeen(each, "detail")})),
            "upstream mine",
        ).found
        for each in get_args(Failure)
        if each != failure
    }

    assert finding.state == "fault"
    assert "models.corp" in finding.found
    assert finding.advice
    assert finding.found not in others


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("dns", "HTTPS_PROXY"),
        ("connect_timeout", "HTTPS_PROXY"),
        ("certificate", "SSL_CERT_FILE"),
        ("tls", "https://"),
        ("tunnel", "NO_PROXY"),
    ],
)
def test_what_to_do_of_a_failure(look: Look, failure: Failure, words: str) -> None:
    seen = look(MINE, {"mine": AnswerSeen(failure)})

    assert words in (one(providers.judge_upstreams(seen), "upstream mine").advice or "")


def test_a_proxy_that_fails_is_what_is_blamed(look: Look) -> None:
    seen = look(MINE, {"mine": AnswerSeen("refused", via="proxy.corp:3128")})
    finding = one(providers.judge_upstreams(seen), "upstream mine")

    assert "the proxy proxy.corp:3128" in finding.found
    assert "NO_PROXY" in (finding.advice or "")


@pytest.mark.parametrize(
    ("toml", "environ", "name", "state"),
    [
        ("", {}, "ollama", "warn"),  # built in, on this machine
        ("", {"OLLAMA_HOST": "127.0.0.1"}, "ollama", "fault"),
        ('[[provider]]\nname = "ollama"\nmodels = ["x"]', {}, "ollama", "fault"),
        ("", {}, "openai", "fault"),  # nothing is configured: it is what will be asked
        ("", {"OPENAI_API_KEY": KEY}, "openai", "fault"),
        ("", {"OPENAI_API_KEY": KEY}, "anthropic", "warn"),  # something else was chosen
        (MINE, {}, "openai", "warn"),
        (MINE, {}, "mine", "fault"),
    ],
)
def test_what_was_chosen_must_work(
    look: Look, toml: str, environ: dict[str, str], name: str, state: str
) -> None:
    seen = look(toml, {name: GONE}, environ)

    assert one(providers.judge_upstreams(seen), f"upstream {name}").state == state


def test_ollama_is_advised_only_for_who_wants_it(look: Look) -> None:
    found = [
        one(providers.judge_upstreams(look("", {"ollama": GONE}, environ)), "upstream ollama")
        for environ in ({}, {"OLLAMA_HOST": "127.0.0.1"})
    ]

    assert [each.advice for each in found] == [
        "Only if you want to use Ollama: start it with `ollama serve`.",
        "Start it with `ollama serve`.",
    ]


def test_who_was_not_asked_is_skipped(look: Look) -> None:
    states = {each.state for each in providers.judge_upstreams(look(MINE))}

    assert states == {"skip"}


# -- keys


@pytest.mark.parametrize(
    ("answer", "state", "found"),
    [
        (GOOD, "ok", "is accepted"),
        (UNKNOWN, "fault", "is refused (401)"),
        (AnswerSeen(status=400, blames_key=True), "fault", "is refused (400)"),
        (AnswerSeen(status=403), "fault", "may not list models (403)"),
        (AnswerSeen(status=403, media_type="text/html"), "skip", "the answer was 403"),
        (AnswerSeen(status=429), "warn", "over a limit"),
        (AnswerSeen(status=500), "skip", "the answer was 500"),
        (AnswerSeen(status=200, is_open=True), "skip", "lists its models without one"),
        (GONE, "skip", "no answer"),
        (AnswerSeen(status=508, is_loop=True), "skip", "no answer"),
        (None, "skip", "no answer"),
    ],
)
def test_a_key(look: Look, answer: AnswerSeen | None, state: str, found: str) -> None:
    seen = look(KEYED, {} if answer is None else {"mine": answer})
    finding = one(providers.judge_keys(seen), "key mine")

    assert (finding.state, found in finding.found) == (state, True), finding
    assert "agentstate.toml:4" in finding.found
    assert KEY not in repr(finding)


def test_a_refused_key_of_somebody_else_s_is_told(look: Look) -> None:
    seen = look(environ={"ANTHROPIC_API_KEY": KEY}, answers={"anthropic": UNKNOWN})
    finding = one(providers.judge_keys(seen), "key anthropic")

    assert finding.found == (
        "the key in ANTHROPIC_API_KEY is refused (401) and looks like one of OpenAI"
    )
    assert (finding.advice or "").endswith("put it into ANTHROPIC_API_KEY.")


def test_no_key_is_no_fault(look: Look) -> None:
    found = {each.check: each for each in providers.judge_keys(look())}

    assert {each.state for each in found.values()} == {"ok"}
    assert found["key openai"].found == "none configured: the caller's key is used"
    assert "none is needed" in found["key ollama"].found


def test_a_placeholder_in_the_environment_counts_as_none_and_is_told(look: Look) -> None:
    seen = look(environ={"OPENAI_API_KEY": "your-api-key"})
    finding = one(providers.judge_keys(seen), "key openai")

    assert (finding.state, "OPENAI_API_KEY holds a placeholder" in finding.found) == ("warn", True)


@pytest.mark.parametrize(
    ("answer", "state"), [(None, "fault"), (GONE, "fault"), (UNKNOWN, "fault"), (GOOD, "ok")]
)
def test_a_placeholder_is_a_fault_unless_it_is_taken(
    look: Look, answer: AnswerSeen | None, state: str
) -> None:
    toml = MINE + 'api_key = "sk-..."'
    seen = look(toml, {} if answer is None else {"mine": answer}, is_offline=answer is None)
    finding = one(providers.judge_keys(seen), "key mine")

    assert (finding.state, "placeholder" in finding.found) == (state, state == "fault"), finding


def test_a_local_server_may_be_given_any_key(look: Look) -> None:
    toml = '[[provider]]\nname = "vllm"\nbase_url = "http://localhost:8000/v1"\napi_key = "EMPTY"'

    assert one(providers.judge_keys(look(toml)), "key vllm").state == "skip"


def test_what_can_be_no_key_is_a_fault_whatever_was_answered(look: Look) -> None:
    seen = look(MINE + f"api_key = \"'{KEY}'\"", {"mine": GOOD})
    finding = one(providers.judge_keys(seen), "key mine")

    assert (finding.state, "quotation marks" in finding.found) == ("fault", True)
    assert KEY not in repr(finding)


# -- clock


def clock(look: Look, **skews: int) -> Finding:
    answers = {name: AnswerSeen(status=401, skew_ms=ms, doubt_ms=600) for name, ms in skews.items()}
    [finding] = providers.judge_clock(look(answers=answers))
    return finding


@pytest.mark.parametrize(
    ("skew_ms", "state", "found"),
    [
        (0, "ok", "agrees with that of openai within 1 s"),
        (-2_400, "ok", "within 2 s"),
        (60_000, "ok", "within 60 s"),  # the doubt is the clock's
        (60_600, "fault", "61 seconds ahead of that of openai"),
        (-60_600, "fault", "61 seconds behind that of openai"),
        (-300_000, "fault", "5 minutes behind"),
        (7_200_000, "fault", "2 hours ahead"),
        (-10 * 86_400_000, "fault", "10 days behind"),
    ],
)
def test_a_clock(look: Look, skew_ms: int, state: str, found: str) -> None:
    finding = clock(look, openai=skew_ms)

    assert (finding.state, found in finding.found) == (state, True), finding
    assert (finding.advice is not None) == (state == "fault")


def test_one_that_agrees_acquits_unless_it_is_this_machine_s_own(look: Look) -> None:
    assert clock(look, openai=500_000, anthropic=10).state == "ok"
    assert clock(look, openai=500_000, ollama=10).state == "fault"
    assert clock(look, ollama=10).state == "skip"
    assert clock(look, ollama=500_000).state == "fault"
    assert clock(look).state == "skip"


# -- fallbacks


def test_a_fallback_without_a_key_is_a_warning(look: Look) -> None:
    toml = MINE + '[forward]\nfallback = ["claude-haiku-4-5", "mine/large", "mock/x"]\n'
    [claude, mine, mock] = providers.judge_fallbacks(look(toml))

    assert (claude.state, "no key is configured for anthropic" in claude.found) == ("warn", True)
    assert (mine.state, "no key is configured for mine" in mine.found) == ("warn", True)
    assert (mock.state, mock.found) == ("ok", "mock/x is asked as mock/x")


def test_a_fallback_with_a_key_is_told_with_its_place(look: Look) -> None:
    toml = KEYED + '[forward]\nfallback = ["mine/large"]\n'
    [found] = providers.judge_fallbacks(look(toml, environ={"ANTHROPIC_API_KEY": "sk-ant-1"}))
    assert (found.state, found.found) == ("ok", "mine/large is asked as mine/large")

    routed = '[[forward.route]]\nmodel = "gpt-*"\nfallback = ["claude-haiku-4-5"]\n'
    [found] = providers.judge_fallbacks(look(routed, environ={"ANTHROPIC_API_KEY": "sk-ant-1"}))
    assert found.found == "claude-haiku-4-5 is asked as anthropic/claude-haiku-4-5"


def test_no_fallback_is_fine(look: Look) -> None:
    [found] = providers.judge_fallbacks(look())
    assert found.state == "ok"
