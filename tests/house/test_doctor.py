"""The table of checks, and looking at everything at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agentstate.ground.load import load_settings
from agentstate.house import doctor
from agentstate.house.doctor import CHECKS, Check, examine, judge, look
from agentstate.house.doctor_seen import CertificatesSeen, Finding, ProxiesSeen, Seen, Subject
from tests.helpers.upstream import Reply, Upstream

KEY = "weird-0123456789abcdef"
LIST = Reply(200, ((b"content-type", b"application/json"),), (b"{}",))


def subject_of(folder: Path, toml: str, *, is_offline: bool = False) -> Subject:
    (folder / "agentstate.toml").write_text(toml)
    loaded = load_settings({"store.path": str(folder / "a.db")}, {}, folder, None)
    return Subject("1.0", {}, "agentstate.toml", loaded, None, is_offline)


def mine(url: str) -> str:
    """Return a file in which every provider is at `url`, so that nothing leaves this machine."""
    names = ("openai", "anthropic", "gemini", "ollama", "mine")
    return "[server]\nport = 0\n" + "".join(
        f'[[provider]]\nname = "{name}"\nbase_url = "{url}/v1"\napi_key = "{KEY}"\n'
        for name in names
    )


def test_without_settings_what_needs_none_is_judged_all_the_same() -> None:
    findings = asyncio.run(examine(Subject("1.0", {}, "", None, "wrong")))

    states = {each.check: each.state for each in findings}
    assert states["settings"] == "fault"
    assert {states[name] for name in ("python", "certificates", "proxies")} == {"ok"}
    skipped = {each.name for each in CHECKS if each.needs != "nothing"}
    assert {name for name, state in states.items() if state == "skip"} == skipped
    assert {each.found for each in findings if each.state == "skip"} == {
        "the settings must load first"
    }


@pytest.mark.parametrize(
    ("toml", "is_offline", "why"),
    [("", True, "not asked: --offline"), ("mock = true\n", False, "mock: no model is asked")],
)
def test_nobody_is_asked_who_should_not_be(
    tmp_path: Path, toml: str, is_offline: bool, why: str
) -> None:
    with Upstream() as upstream:
        subject = subject_of(tmp_path, toml + mine(upstream.url), is_offline=is_offline)
        findings = asyncio.run(examine(subject))
        assert (upstream.received, upstream.unscripted) == ([], [])

    found = {each.check: each.found for each in findings}
    assert found["upstreams"] == found["clock"] == why
    assert "was not tried" in found["key mine"]


def test_broken_certificates_are_the_one_fault_and_nobody_is_asked(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, mine("http://127.0.0.1:9"))
    environ = {"SSL_CERT_FILE": str(tmp_path / "none.pem")}
    findings = asyncio.run(examine(replace(subject, environ=environ)))

    assert [each.check for each in findings if each.state == "fault"] == ["certificates"]


def test_all_is_well_and_nothing_is_made(tmp_path: Path) -> None:
    with Upstream([LIST] * 10) as upstream:
        subject = subject_of(tmp_path, mine(upstream.url))
        findings = asyncio.run(examine(subject))

    assert {each.state for each in findings} == {"ok", "skip"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["agentstate.toml"]


def test_a_record_in_memory_has_no_file_to_look_at(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, "", is_offline=True)
    assert subject.loaded is not None
    settings = subject.loaded.settings
    memory = replace(settings, store=replace(settings.store, path="memory://"))
    seen = asyncio.run(look(replace(subject, loaded=replace(subject.loaded, settings=memory))))

    assert seen.database is None


def test_a_key_that_got_into_a_finding_is_struck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leak(_: Seen) -> list[Finding]:
        return [Finding("leak", "ok", f"it is {KEY}", f"use {KEY}")]

    monkeypatch.setattr(doctor, "CHECKS", (Check("leak", leak),))
    subject = subject_of(tmp_path, mine("http://127.0.0.1:9"))
    seen = Seen(subject, (3, 12, 0), CertificatesSeen(""), ProxiesSeen())

    assert judge(seen) == (Finding("leak", "ok", "it is …", "use …"),)
