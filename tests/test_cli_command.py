"""A command is run as a shell would: what it is told, and how it ended."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from agentstate.cassettes import secret_values
from agentstate.cli_command import CannotRun, environment, run_command

URL = "http://127.0.0.1:4711"


def test_its_clients_are_led_to_the_proxy() -> None:
    given = {"OPENAI_BASE_URL": "https://real.example/v1", "OPENAI_API_KEY": "mine", "HOME": "/h"}

    found = environment(given, URL, "a/b", "none")

    base = f"{URL}/s/a%2Fb"
    assert found == {
        "HOME": "/h",
        "OPENAI_API_KEY": "mine",
        "OPENAI_BASE_URL": f"{base}/v1",
        "OPENAI_API_BASE": f"{base}/v1",
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_API_URL": base,
        "GOOGLE_GEMINI_BASE_URL": base,
        "ANTHROPIC_API_KEY": "none",
        "GEMINI_API_KEY": "none",
    }
    assert given["OPENAI_BASE_URL"] == "https://real.example/v1"


def test_one_key_of_several_names_is_enough() -> None:
    given = {"ANTHROPIC_AUTH_TOKEN": "mine", "GOOGLE_API_KEY": "mine", "OPENAI_API_KEY": ""}

    found = environment(given, URL, "s", "none")

    assert "ANTHROPIC_API_KEY" not in found
    assert "GEMINI_API_KEY" not in found
    assert found["OPENAI_API_KEY"] == "none"
    assert environment({}, URL, "s", None).keys().isdisjoint({"OPENAI_API_KEY"})


def test_what_is_on_this_machine_is_not_asked_of_a_proxy() -> None:
    found = environment({"HTTP_PROXY": "http://proxy:1", "no_proxy": "a.example"}, URL, "s", None)

    assert found["no_proxy"] == "a.example,127.0.0.1,localhost"
    assert found["NO_PROXY"] == "127.0.0.1,localhost"
    assert "NO_PROXY" not in environment({}, URL, "s", None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_it_ends_as_the_command_does(code: str, expected: int) -> None:
    assert asyncio.run(run_command([sys.executable, "-c", code], {})) == expected


def test_what_cannot_be_run_has_the_code_of_a_shell() -> None:
    for command, code in (("no-such-command-at-all", 127), ("/", 126)):
        with pytest.raises(CannotRun) as caught:
            asyncio.run(run_command([command], {"PATH": "/usr/bin"}))
        assert caught.value.code == code


def test_secrets_of_the_environment_are_known_by_their_names() -> None:
    long = "abcdefghijklmnop1"
    given = {
        "MY_API_KEY": long,
        "service_token": long + "2",
        "DB_PASSWORD": "short1",
        "SOME_SECRET": "a-word-without-number",
        "PATH": long + "3",
    }

    assert secret_values(given) == (long, long + "2")
