"""Real agents beside a proxy that records them, and on what it recorded: no key, no upstream.

The upstream never answers twice alike, so what comes again comes from the cassette. The agent's
clock goes on and its tool never returns the same, as in real runs.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.helpers.node import FOLDER as NODE_FOLDER
from tests.helpers.node import need_node
from tests.helpers.proxy import _NOT_INHERITED, ROOT, Proxy
from tests.helpers.upstream import CountingUpstream, Received, Reply, json_reply, sse_reply
from tests.helpers.upstream import model_reply as chat_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

AGENT = Path(__file__).parent / "agents" / "taped.py"
DIGITS = "a1B2" * 10
KEY = "sk-" + "proj-" + DIGITS  # put together, so that no scanner takes this file for a leak
CANARY = "sk-" + "ant-" + DIGITS[::-1]
WAIT_S = 90.0
NOWHERE = "http://127.0.0.1:9"


class Moody(CountingUpstream):
    """Answers the n-th call as no other, in OpenAI's form and in Anthropic's."""

    def reply_to(self, request: Received) -> Reply:
        with self._lock:
            self.counts["all"] += 1
            seed = self.counts["all"]
        ask = request.json()
        if not request.target.endswith("/messages"):
            return chat_reply(ask | {"seed": seed}, words=3)
        message: dict[str, Any] = {
            "id": f"msg_{seed}", "type": "message", "role": "assistant", "model": "claude-x",
            "content": [{"type": "text", "text": f"No. {seed}, é"}], "stop_reason": "end_turn",
            "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 4},
        }  # fmt: skip
        if not ask.get("stream"):
            return json_reply(message)
        text = message["content"][0]["text"]
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0,
             "content_block": {"type": "text", "text": ""}},
            *({"type": "content_block_delta", "index": 0,
               "delta": {"type": "text_delta", "text": each}} for each in text),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
             "usage": {"output_tokens": 4}},
            {"type": "message_stop"},
        ]  # fmt: skip
        return sse_reply(
            [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]
        )


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    said: str


def environment(upstream: str = NOWHERE, **more: str) -> dict[str, str]:
    """Return an environment in which nothing of a developer's own stands."""
    return {
        **{name: value for name, value in os.environ.items() if not _NOT_INHERITED.match(name)},
        "PYTHONPATH": str(ROOT),
        "OPENAI_BASE_URL": f"{upstream}/v1",
        "ANTHROPIC_BASE_URL": upstream,
        **more,
    }


def agentstate(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "agentstate", *arguments]


def run(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], *, takes: str | None = None
) -> Done:
    done = subprocess.run(
        agentstate(*arguments),
        cwd=cwd,
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        input=takes,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def agent(*more: str) -> list[str]:
    return [*more, "--", sys.executable, str(AGENT)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cassette of the agent, and what it printed."""
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    folder = tmp_path_factory.mktemp("tapes")
    env = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": CANARY, "AGENT_SECRET": CANARY}
    with Moody() as upstream:
        done = run(["record", *agent("tapes/run.jsonl")], folder, environment(upstream.url, **env))
        assert done.code == 0, done.said
        assert upstream.counts["all"] == 13
        # Each provider gets its caller's key, as without us.
        for request in upstream.received:
            own, other = (CANARY, KEY) if "/messages" in request.target else (KEY, CANARY)
            sent = str(request.headers)
            assert own in sent
            assert other not in sent
    assert "13 calls in tapes/run.jsonl" in done.said
    assert "secrets taken out: anthropic_key" in done.said
    return folder / "tapes" / "run.jsonl", done.out


def replay(tape: Path, *flags: str, **env: str) -> Done:
    """Run the agent on the cassette, with no upstream and no key."""
    return run(["replay", *flags, *agent(str(tape))], tape.parent, environment(**env))


def test_an_agent_replays_whole_with_no_key_and_no_upstream(recorded: tuple[Path, str]) -> None:
    tape, told = recorded

    # Another secret in its prompt would be another prompt: it is the same one, never in the file.
    done = replay(tape, "--strict", AGENT_SECRET=CANARY)

    assert (done.code, done.out, done.said) == (0, told, "")


def test_no_secret_is_anywhere_in_the_file(recorded: tuple[Path, str]) -> None:
    raw = recorded[0].read_text("utf-8")

    assert DIGITS not in raw
    assert DIGITS[::-1] not in raw
    assert "[secret:anthropic_key]" in raw
    assert sorted(path.name for path in recorded[0].parent.iterdir()) == ["run.jsonl"]


def test_two_recordings_differ_in_the_answers_alone(recorded: tuple[Path, str]) -> None:
    one = recorded[0].read_text("utf-8")
    for name in ('"date"', "x-request-id", "run_id", '"created_ms"', "latency"):
        assert name not in one
    steps = [json.loads(line) for line in one.splitlines()][2:-1]
    assert [each.get("step") for each in steps] == [None] * 13
    assert sum("like" in each for each in steps) >= 1


def test_what_changed_is_named_though_the_agent_died_of_it(recorded: tuple[Path, str]) -> None:
    tape, _ = recorded

    done = replay(tape, AGENT_SECRET=CANARY, AGENT_QUESTION="What is under the bed?")

    assert done.code == 1
    assert "NotFoundError" in done.said
    assert "1 call had no recorded answer" in done.said
    assert "the nearest recorded step is 0, which differs at messages[1].content" in done.said
    assert re.search(r"sent +What is under the bed\?", done.said)
    assert re.search(r"recorded +What is in the drawer\?", done.said)
    assert DIGITS[::-1] not in done.said


def test_what_changed_fails_though_the_agent_swallowed_it(recorded: tuple[Path, str]) -> None:
    tape, told = recorded

    done = replay(tape, AGENT_SECRET=CANARY, AGENT_SWALLOWS="1")

    assert done.code == 1
    assert done.out.startswith(told)
    assert "offline_miss" in done.out or "Offline" in done.out
    assert "1 call had no recorded answer" in done.said


def test_strict_lists_what_was_not_asked_for(recorded: tuple[Path, str]) -> None:
    tape, _ = recorded
    script = "import openai; print(openai.OpenAI().chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'Part 3.'}]).id)"  # noqa: E501

    for flags, code in ((["--strict"], 1), ([], 0)):
        arguments = ["replay", *flags, str(tape), "--", sys.executable, "-c", script]
        done = run(arguments, tape.parent, environment())
        assert done.code == code
        assert done.out.startswith("chatcmpl-")
        assert ("12 recorded calls not asked for" in done.said) is bool(flags)
        assert ("run step 0, m: What is in the drawer?" in done.said) is bool(flags)


def test_what_is_asked_more_often_than_recorded_gets_the_last_answer(
    recorded: tuple[Path, str],
) -> None:
    tape, told = recorded
    script = "import openai; c = openai.OpenAI()\nfor _ in range(3): print(repr(c.chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'Again.'}]).choices[0].message.content))"  # noqa: E501

    done = run(
        ["replay", str(tape), "--", sys.executable, "-c", script], tape.parent, environment()
    )

    first, second = told.splitlines()[-2:]
    assert first != second
    assert done.code == 0
    assert done.out.splitlines() == [first, second, second]
    assert "1 call asked once more" in done.said


@pytest.mark.parametrize("between", ["nothing", "stop", "kill"])
def test_a_cassette_made_here_replays_elsewhere(
    between: Literal["nothing", "stop", "kill"], recorded: tuple[Path, str], tmp_path: Path
) -> None:
    tape, told = recorded
    env = environment(AGENT_SECRET=CANARY, OPENAI_API_KEY="none", ANTHROPIC_API_KEY="none")
    with Proxy(upstream_url=NOWHERE, db=tmp_path / "record.db", flags=["--offline"]) as proxy:

        def come_back() -> None:
            if between == "stop":
                proxy.stop()
                proxy.start()
            elif between == "kill":
                proxy.restart()

        url = ["--url", proxy.url]
        done = run(["import", str(tape), "--as", "moved/1", *url], tmp_path, env)
        assert (done.code, done.out) == (0, "moved/1: 13 steps imported\n"), done.said
        come_back()
        base = f"{proxy.url}/s/moved%2F1"
        env |= {"OPENAI_BASE_URL": f"{base}/v1", "ANTHROPIC_BASE_URL": base}
        played = subprocess.run(
            [sys.executable, str(AGENT)], env=env, capture_output=True, text=True, check=False
        )
        # Without a run id a moved clock is a new question.
        assert "differs at messages[0].content" in played.stderr
        done = run(["sessions", "cassette", "moved/1", "--out", "again.jsonl", *url], tmp_path, env)
        assert done.code == 0, done.said
        come_back()
        again = tmp_path / "again.jsonl"
        own = tape.read_bytes().replace(b'{"session":"run"}', b'{"session":"moved/1"}')
        # But for the last line: there are no secrets left to take out.
        assert again.read_bytes().splitlines()[:-1] == own.splitlines()[:-1]
        refused = run(["import", str(again), *url], tmp_path, env)
        assert refused.code == 1
        assert "There is a session 'moved/1' on record already" in refused.said
        done = run(["import", str(again), "--replace", *url], tmp_path, env)
        assert "13 steps that were there are taken back" in done.out
        come_back()
        found = proxy.maybe_session("moved/1")
        assert found is not None
        assert found["session"]["status"] == "COMPLETED"

    done = replay(again, "--strict", AGENT_SECRET=CANARY)
    assert (done.code, done.out) == (0, told), done.said


def test_the_verbs_work_on_the_file_where_no_server_runs(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    tape, _ = recorded
    env = environment(AGENTSTATE_DB=str(tmp_path / "record.db"))
    with Proxy(upstream_url=NOWHERE, db=tmp_path / "record.db"):
        pass  # makes the file

    done = run(["import", "-", "--json"], tmp_path, env, takes=tape.read_text("utf-8"))
    assert done.code == 0, done.said
    assert json.loads(done.out)["steps_imported"] == 13
    done = run(["sessions", "cassette", "run"], tmp_path, env)

    assert done.out.splitlines()[:-1] == tape.read_text("utf-8").splitlines()[:-1]
    assert "13 steps: " in done.said


def test_a_call_that_was_approved_when_it_was_recorded_is_not_asked_about(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    env = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "none", "AGENTSTATE_GATE_TOOLS": "lookup"}
    with Moody() as upstream:
        recording = subprocess.Popen(
            agentstate("record", *agent("held.jsonl")),
            cwd=tmp_path,
            env=environment(upstream.url, **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert recording.stderr is not None
        first = recording.stderr.readline()
        found = re.search(r"http://(127\.0\.0\.1):(\d+)", first)
        assert found is not None, first
        approve_all(found[1], int(found[2]), 1)
        out, said = recording.communicate(timeout=WAIT_S)
    assert recording.returncode == 0, said

    done = replay(tmp_path / "held.jsonl", "--strict", AGENTSTATE_GATE_TOOLS="lookup")

    assert (done.code, done.out) == (0, out), done.said


def approve_all(host: str, port: int, count: int) -> None:
    """Approve that many held calls as they come."""
    until_s = time.perf_counter() + WAIT_S
    while count:
        assert time.perf_counter() < until_s, "nothing was held"
        for row in api(host, port, "GET", "/api/approvals/pending"):
            path = f"/api/approvals/{row['approval_id']}/action"
            api(host, port, "POST", path, {"action": "APPROVED"})
            count -= 1
        time.sleep(0.05)


def api(host: str, port: int, method: str, path: str, value: Any = None) -> Any:
    connection = http.client.HTTPConnection(host, port, timeout=WAIT_S)
    body = None if value is None else json.dumps(value)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        found = json.loads(response.read())
        assert response.status == 200, found
        return found
    finally:
        connection.close()


NODE = """
import OpenAI from "openai";
const client = new OpenAI();
const ask = (content, more) => client.chat.completions.create({
  model: "m", messages: [{ role: "user", content }], ...more });
console.log((await ask("One.")).choices[0].message.content);
let text = "";
for await (const chunk of await ask("Two.", { stream: true }))
  text += chunk.choices[0]?.delta?.content ?? "";
console.log(text);
"""


def test_a_node_agent_is_recorded_and_replayed(tmp_path: Path) -> None:
    node = need_node()
    script = NODE_FOLDER / "taped.mjs"  # beside node_modules, where Node looks
    script.write_text(NODE, encoding="utf-8")
    command = ["--", node, str(script)]
    with Moody() as upstream:
        env = environment(upstream.url, OPENAI_API_KEY=KEY)
        one = run(["record", "node.jsonl", *command], tmp_path, env)
    assert one.code == 0, one.said

    two = run(["replay", "--strict", "node.jsonl", *command], tmp_path, environment())

    assert len(one.out.splitlines()) == 2
    assert (two.code, two.out) == (0, one.out), two.said


# --- how a command ends ---------------------------------------------------------------------------

ASK = (
    "import openai\n"
    "ask = [{'role': 'user', 'content': 'a'}]\n"
    "openai.OpenAI().chat.completions.create(model='m', messages=ask)\n"
)


def test_what_a_command_got_to_is_kept_when_it_fails(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    with Moody() as upstream:
        env = environment(upstream.url, OPENAI_API_KEY=KEY)
        code = f"{ASK}raise SystemExit(3)"
        done = run(["record", "x.jsonl", "--", sys.executable, "-c", code], tmp_path, env)
    assert done.code == 3
    assert "1 call in x.jsonl. The command ended with 3. That is what it got to." in done.said

    before = (tmp_path / "x.jsonl").read_bytes()
    done = run(["record", "x.jsonl", "--", sys.executable, "-c", "1/0"], tmp_path, env)
    assert done.code == 1
    assert "no call was recorded; x.jsonl stays as it was" in done.said
    assert (tmp_path / "x.jsonl").read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_all_that_the_command_began(
    number: signal.Signals, tmp_path: Path
) -> None:
    pytest.importorskip("openai")
    # It asks once, leaves a child that ignores what is polite, and waits.
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    code = (
        f"import signal, subprocess, sys, time\n{ASK}"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with Moody() as upstream:
        recording = subprocess.Popen(
            agentstate("record", "x.jsonl", "--", sys.executable, "-c", code),
            cwd=tmp_path,
            env=environment(upstream.url, OPENAI_API_KEY=KEY),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert recording.stdout is not None
        pid = int(recording.stdout.readline())
        recording.send_signal(number)
        _, said = recording.communicate(timeout=WAIT_S)

    # Python answers Ctrl-C with a traceback and ends by the signal itself.
    assert recording.returncode == 128 + number, said
    assert "1 call in x.jsonl. The command ended with" in said
    assert (tmp_path / "x.jsonl").exists()
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Say whether a process lives; one that waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("verb", ["record", "replay"])
def test_a_command_that_cannot_be_run_says_so_as_a_shell_does(
    verb: str, recorded: tuple[Path, str], tmp_path: Path
) -> None:
    tape = tmp_path / "x.jsonl"
    tape.write_bytes(recorded[0].read_bytes())
    (tmp_path / "plain").write_text("", encoding="utf-8")
    for command, code in (("no-such-command", 127), ("./plain", 126)):
        done = run([verb, str(tape), "--", command], tmp_path, environment())
        assert done.code == code
        assert command in done.said
    assert tape.read_bytes() == recorded[0].read_bytes()


def test_stdin_and_the_exit_code_are_the_commands_own(
    recorded: tuple[Path, str],
) -> None:
    tape, _ = recorded
    code = "import sys; print(sys.stdin.read()[::-1]); print('e', file=sys.stderr); sys.exit(7)"

    done = run(
        ["replay", str(tape), "--", sys.executable, "-c", code],
        tape.parent,
        environment(),
        takes="abc",
    )

    assert (done.code, done.out, done.said) == (7, "cba\n", "e\n")


def test_tokens_of_another_proxy_keep_nobody_out(tmp_path: Path) -> None:
    token = "agent-token-of-at-least-22"
    told = environment(AGENTSTATE_SERVER_CLIENT_TOKENS=token, AGENTSTATE_TOKEN=token[::-1])
    code = (
        "import json, os, urllib.request as u; r = u.Request(os.environ['OPENAI_BASE_URL'] + "
        "'/chat/completions', json.dumps({'model': 'gpt-4o', 'messages': [{'role': 'user', "
        f"'content': '{token}'}}]}}).encode(), {{'content-type': 'application/json', "
        "'authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}); "
        "print(json.load(u.urlopen(r))['object'])"
    )
    command = ["x.jsonl", "--", sys.executable, "-c", code]

    done = run(["record", "--mock", *command], tmp_path, told)
    assert (done.code, done.out) == (0, "chat.completion\n"), done.said
    assert token not in (tmp_path / "x.jsonl").read_text(encoding="utf-8")
    done = run(["replay", *command], tmp_path, told)
    assert (done.code, done.out) == (0, "chat.completion\n"), done.said


def test_what_cannot_be_written_is_found_out_before_anything_is_paid(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = run(["record", "file/x.jsonl", "--", "touch", "ran"], tmp_path, environment())

    assert done.code == 2
    assert "cannot be written" in done.said
    assert not (tmp_path / "ran").exists()


def test_secrets_that_cannot_be_taken_out_lose_no_recording(tmp_path: Path) -> None:
    pytest.importorskip("openai")

    class Leaky(Moody):
        def reply_to(self, request: Received) -> Reply:
            choice = {"index": 0, "finish_reason": "stop",
                      "message": {"role": "assistant", "content": f"It is {CANARY}."}}  # fmt: skip
            return json_reply({"id": "1", "object": "chat.completion", "choices": [choice]})

    code = (
        "import openai; c = openai.OpenAI().chat.completions\n"
        "ask = [{'role': 'user', 'content': 'a'}]\n"
        "got = c.create(model='m', messages=ask).choices[0].message.content\n"
        "c.create(model='m', messages=[*ask, {'role': 'assistant', 'content': got}])\n"
    )
    command = ["--", sys.executable, "-c", code]
    with Leaky() as upstream:
        env = environment(upstream.url, OPENAI_API_KEY=KEY, TMPDIR=str(tmp_path))
        done = run(["record", "x.jsonl", *command], tmp_path, env)
        assert done.code == 1
        assert not (tmp_path / "x.jsonl").exists()
        assert CANARY not in done.said
        found = re.search(r"What was recorded is in (\S+?)\. ", done.said)
        assert found is not None, done.said
        with Proxy(upstream_url=NOWHERE, db=Path(found[1]) / "record.db") as proxy:
            kept = ["sessions", "cassette", "x", "--keep-secrets", "--out", "x.jsonl"]
            done = run([*kept, "--url", proxy.url], tmp_path, env)
        assert done.code == 0
        assert "the file is as secret as what they hold" in done.said
    done = run(["replay", "--strict", "x.jsonl", *command], tmp_path, environment())
    assert (done.code, done.said) == (0, "")


def test_a_server_that_is_offline_sends_nothing(tmp_path: Path) -> None:
    with (
        Moody() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", flags=["--offline"]) as proxy,
    ):
        for method, path in (
            ("POST", "/v1/chat/completions"),
            ("POST", "/s/s/v1/chat/completions"),
            ("POST", "/s/s/v1/messages"),
            ("GET", "/v1/files"),
            ("POST", "/v1/audio/speech"),
            ("GET", "/v1/models"),
        ):
            connection = http.client.HTTPConnection(proxy.host, proxy.port, timeout=WAIT_S)
            ask = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
            body = {**ask, "max_tokens": 1} if method == "POST" else None
            connection.request(method, path, body and json.dumps(body))
            response = connection.getresponse()
            found = json.loads(response.read())
            connection.close()
            if path == "/v1/models":
                assert (response.status, found["data"]) == (200, [])
                assert response.getheader("x-agentstate-models-missing") == "offline"
                continue
            assert response.status == 404
            assert response.getheader("x-should-retry") == "false"
            assert "Offline" in found["error"]["message"]
        assert upstream.received == []
        assert proxy.maybe_session("s") is None
    assert threading.active_count() < 20
