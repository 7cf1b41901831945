"""The command line as a user meets it: verbs, help, exit codes, and a clear line when wrong."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate import __version__, app, cli
from agentstate.__main__ import main
from agentstate.ground.errors import SettingError, StoreBusy
from agentstate.ground.settings import Loaded
from agentstate.ground.settings_table import settings_table
from agentstate.house import bench, demo

ROOT = Path(__file__).resolve().parents[1]

SESSION = {
    "session": "run-1", "status": "COMPLETED", "created_ms": 1767225600000,
    "updated_ms": 1767225605000, "steps": 2, "last_step_number": 1, "input_tokens": 100,
    "output_tokens": 20, "cost_microusd": 1234, "unknown_costs": 0, "replays": 3,
    "saved_microusd": 5000,
}  # fmt: skip
STEP = {
    "step_number": 0, "index": 0, "state": "complete", "model": "gpt-4o", "latency": 12.4,
    "usage": {"total_tokens": 120}, "cost_microusd": None, "replays": 1, "error": None,
    "response": "four",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings or leaves a database behind."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("AGENTSTATE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OLLAMA_", "PORT")):
            monkeypatch.delenv(name)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Loaded]:
    """Take the place of the server: collect what it would have been started with."""
    calls: list[Loaded] = []

    def serve(loaded: Loaded, load: object) -> int:
        calls.append(loaded)
        return 0

    monkeypatch.setattr(app, "serve", serve)
    return calls


# -- verbs


@pytest.mark.parametrize("verb", [[], ["serve"]])
def test_serve_is_the_default_verb(served: list[Loaded], verb: list[str]) -> None:
    assert main([*verb, "--port", "0", "--db", "x.db", "--mock", "--log", "json"]) == 0

    settings = served[0].settings
    assert (settings.server.port, settings.store.path) == (0, "x.db")
    assert settings.mock is True
    assert settings.log.format == "json"


def test_serve_needs_no_argument(served: list[Loaded]) -> None:
    assert main([]) == 0
    assert served[0].settings.server.port == 8080


def test_serve_reads_the_file_that_config_names(served: list[Loaded], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[server]\nport = 7\n")

    assert main(["--config", "mine.toml"]) == 0
    assert served[0].settings.server.port == 7


def test_every_flag_of_the_table_is_a_flag_of_serve(
    served: list[Loaded], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["serve", "--help"])

    printed = capsys.readouterr().out
    assert left.value.code == 0
    assert [row.flag for row in settings_table() if row.flag and row.flag not in printed] == []


def test_demo_crash_passes_its_numbers_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def crash(**arguments: object) -> int:
        calls.append(arguments)
        return 1

    monkeypatch.setattr(demo, "crash", crash)

    assert main(["demo", "crash"]) == 1
    assert main(["demo", "crash", "--steps", "9", "--kill-at", "4", "--keep", "d.db"]) == 1
    assert calls == [
        {"steps": 50, "kill_at": None, "keep": None},
        {"steps": 9, "kill_at": 4, "keep": Path("d.db")},
    ]


def test_bench_passes_its_flags_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def measure(**arguments: object) -> int:
        calls.append(arguments)
        return 0

    monkeypatch.setattr(bench, "run", measure)

    assert main(["bench", "--quick", "--json"]) == 0
    assert main(["bench", "calls", "streams"]) == 0
    assert main(["bench", "--beside", "peers.json"]) == 0
    assert calls == [
        {"json_output": True, "quick": True, "names": [], "beside": None},
        {"json_output": False, "quick": False, "names": ["calls", "streams"], "beside": None},
        {"json_output": False, "quick": False, "names": [], "beside": Path("peers.json")},
    ]


def test_a_part_that_the_bench_does_not_have_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "nonsense"])
    assert ended.value.code == 2
    assert "'nonsense' is none of crash, calls" in capsys.readouterr().err


# -- help and version


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert left.value.code == 0
    assert capsys.readouterr().out == f"agentstate {__version__}\n"


def test_help_names_every_verb_and_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])

    printed = capsys.readouterr().out
    assert left.value.code == 0
    assert [verb.name for verb in cli.VERBS if f"\n    {verb.name} " not in printed] == []
    assert [row.key for row in settings_table() if f"\n    {row.key}" not in printed] == []
    assert [line for line in printed.splitlines() if len(line) > cli.WIDTH_MAX] == []


@pytest.mark.parametrize("verb", [verb.name for verb in cli.VERBS])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])

    assert left.value.code == 0
    assert f"usage: agentstate {verb}" in capsys.readouterr().out


# -- what is wrong: one line, one code


@pytest.mark.parametrize(
    "argv",
    [["fly"], ["serve", "--fly"], ["--prot", "1"], ["--po", "1"], ["demo"], ["demo", "fly"],
     ["sessions"], ["sessions", "show"], ["demo", "crash", "--steps", "many"]],
)  # fmt: skip
def test_wrong_usage_is_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)

    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_wrong_setting_is_one_line_and_code_2(
    served: list[Loaded], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agentstate.toml").write_text("[server]\nprot = 1\n")

    assert main([]) == 2
    assert served == []
    assert capsys.readouterr().err == (
        "agentstate: agentstate.toml:2: unknown key 'prot' in [server]. Did you mean \"port\"?\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SettingError("The port is taken."), 2, "agentstate: The port is taken.\n"),
        (StoreBusy("Held by 7.", hint="Stop it."), 1, "agentstate: Held by 7. Stop it.\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_the_server_raises_becomes_a_line_and_a_code(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def serve(_: Loaded, load: object) -> int:
        raise error

    monkeypatch.setattr(app, "serve", serve)

    assert main([]) == code
    assert capsys.readouterr().err == said


def test_a_bug_of_ours_is_shown_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def serve(_: Loaded, load: object) -> int:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(app, "serve", serve)

    assert main([]) == 1
    printed = capsys.readouterr().err
    assert "ZeroDivisionError: on purpose" in printed
    assert "this is a bug in AgentState" in printed


@pytest.mark.parametrize("length", [1, 1_000_000])  # what fits into a buffer, and what does not
def test_nobody_reading_on_is_no_error(length: int) -> None:
    script = (
        "import sys; import agentstate.__main__ as m;"
        f"m.run = lambda argv: print('x' * {length}) or 0; sys.exit(m.main([]))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)

    assert (done.returncode, done.stderr) == (141, b"")


def test_names_that_the_terminal_cannot_show_are_escaped() -> None:
    script = (
        "from agentstate.__main__ import main; import agentstate.__main__ as m; import sys;"
        "m.run = lambda argv: print('\\u2265 \\udc80') or 0; sys.exit(main([]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, b"\\u2265 \\udc80\n")


# -- sessions, against a server that answers from a table

Pages = dict[str, tuple[int, bytes, dict[str, str]]]


@pytest.fixture
def start_server() -> Iterator[Callable[[Pages], str]]:
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(pages: Pages) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body, headers = pages.get(self.path, (404, b"no such page", {}))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Keep the test's output clean."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ok(value: object, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    return 200, json.dumps(value).encode(), {k.replace("_", "-"): v for k, v in headers.items()}


def test_sessions_are_listed_page_by_page(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    second = {**SESSION, "session": "run-2", "unknown_costs": 1}
    url = start_server(
        {
            "/api/sessions?limit=200": ok([SESSION], x_next_cursor="a b"),
            "/api/sessions?limit=200&after=a%20b": ok([second]),
        }
    )

    assert main(["sessions", "list", "--url", url]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "SESSION", "STATUS", "STEPS", "REPLAYS", "TOKENS", "COST", "SAVED", "LAST", "ACTIVE",
    ]  # fmt: skip
    assert lines[1].split() == [
        "run-1", "COMPLETED", "2", "3", "120", "$0.001234", "$0.005000", "2026-01-01", "00:00:05Z",
    ]  # fmt: skip
    assert "≥ $0.001234" in lines[2]


def test_sessions_as_json_are_what_the_server_said(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = start_server({"/api/sessions?limit=200": ok([SESSION])})

    assert main(["sessions", "list", "--json", "--url", url + "/"]) == 0
    assert json.loads(capsys.readouterr().out) == [SESSION]


def test_no_sessions_is_a_sentence(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = start_server({"/api/sessions?limit=200": ok([])})

    assert main(["sessions", "list", "--url", url]) == 0
    assert capsys.readouterr().out.startswith("No sessions yet.")


def test_sessions_are_filtered_by_the_server(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    filters = "status=FAILED&search=a%20%26%20b&parent=boss&forked_from=x%2Fy&tag=team%3Dops%2Cenv&"
    url = start_server({f"/api/sessions?{filters}limit=200": ok([SESSION])})
    asked = ["--tag", "team=ops", "--tag", "env", "--status", "failed", "--name", "a & b"]
    more = ["--parent", "boss", "--forked-from", "x/y"]

    assert main(["sessions", "list", *asked, *more, "--json", "--url", url]) == 0
    assert json.loads(capsys.readouterr().out) == [SESSION]


def test_no_more_sessions_are_asked_for_than_are_shown(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    page = [SESSION] * 200
    url = start_server(
        {
            "/api/sessions?limit=2": ok([SESSION, SESSION], x_next_cursor="c"),
            "/api/sessions?limit=200": ok(page, x_next_cursor="c"),
            "/api/sessions?limit=200&after=c": ok(page, x_next_cursor="d"),
        }
    )

    for limit in (2, 200, 201, 400):
        flags = ["--limit", str(limit), "--json", "--url", url]
        assert main(["sessions", "list", *flags]) == 0
        assert len(json.loads(capsys.readouterr().out)) == limit


@pytest.mark.parametrize("flags", [["--limit", "0"], ["--limit", "x"], ["--status", "DONE"]])
def test_a_filter_that_can_be_none_is_a_mistake_of_use(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["sessions", "list", *flags])
    assert stop.value.code == 2


def test_no_session_that_fits_is_a_sentence(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = start_server({"/api/sessions?status=FAILED&limit=200": ok([])})

    assert main(["sessions", "list", "--status", "FAILED", "--url", url]) == 0
    assert capsys.readouterr().out == "No session is like that.\n"


def test_a_session_is_shown_with_its_steps(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    undone = {**STEP, "rolled_back_ms": 5}
    failed = {**STEP, "step_number": 1, "state": "failed", "usage": None, "latency": None,
              "error": "upstream\x1b[31m said no"}  # fmt: skip
    path = "/api/sessions/a%2Fb%20c?detail=1&limit=200"
    url = start_server(
        {
            path: ok({"session": SESSION, "steps": [undone, STEP]}, x_next_cursor="2"),
            path + "&after=2": ok({"session": SESSION, "steps": [failed]}),
        }
    )

    assert main(["sessions", "show", "a/b c", "--url", url]) == 0

    printed = capsys.readouterr().out
    assert "run-1: COMPLETED, 2 steps, 100 tokens in, 20 out\n" in printed
    assert "cost $0.001234; 3 replays saved $0.005000\n" in printed
    assert "  taken back  " in printed
    rows = [line.split() for line in printed.splitlines()[-2:]]
    assert rows[0] == ["0", "complete", "gpt-4o", "120", "-", "12", "1", "four"]
    assert rows[1][:6] == ["1", "failed", "gpt-4o", "-", "-", "-"]
    assert "\x1b" not in printed
    assert "upstream\\x1b[31m said no" in printed


def test_a_step_that_took_several_attempts_is_told_with_them(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {"provider": "openai", "model": "gpt-4o", "ok": False, "status": 503,
               "error_code": "upstream_refused"}  # fmt: skip
    rests = {**refused, "model": "gpt-5", "status": None, "error_code": "target_rests"}
    answered = {**refused, "provider": "anthropic", "model": "claude-x", "ok": True, "status": 200}
    step = {**STEP, "attempts": [refused, rests, answered]}
    path = "/api/sessions/x?detail=1&limit=200"
    url = start_server({path: ok({"session": SESSION, "steps": [step, STEP]})})

    assert main(["sessions", "show", "x", "--url", url]) == 0
    assert capsys.readouterr().out.endswith(
        "Steps that took more than one attempt:\n"
        "  0  openai/gpt-4o 503; then openai/gpt-5 target_rests; then anthropic/claude-x answered\n"
    )


def test_a_session_as_json_has_all_its_steps(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/api/sessions/x?detail=1&limit=200"
    url = start_server({path: ok({"session": SESSION, "steps": [STEP]})})

    assert main(["sessions", "show", "x", "--json", "--url", url]) == 0
    assert json.loads(capsys.readouterr().out) == {"session": SESSION, "steps": [STEP]}


def test_what_the_server_refuses_is_said_in_its_words(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"error": {"code": "not_found", "message": "There is no session 'x'."}})
    url = start_server({"/api/sessions/x?detail=1&limit=200": (404, body.encode(), {})})

    assert main(["sessions", "show", "x", "--url", url]) == 1
    assert capsys.readouterr().err == "agentstate: There is no session 'x'.\n"


@pytest.mark.parametrize("page", [(200, b"<html>", {}), (404, b"null", {}), (500, b"[]", {})])
def test_what_is_no_server_of_ours_is_named_so(
    page: tuple[int, bytes, dict[str, str]],
    start_server: Callable[[Pages], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = start_server({"/api/sessions?limit=200": page})

    assert main(["sessions", "list", "--url", url]) == 1
    assert f"What answers at {url} is not AgentState" in capsys.readouterr().err


def test_where_no_server_runs_a_person_is_told_what_to_do(
    start_server: Callable[[Pages], str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["sessions", "list", "--url", "http://127.0.0.1:9"]) == 1

    printed = capsys.readouterr().err
    assert printed.startswith("agentstate: No AgentState server answers at http://127.0.0.1:9 ")
    assert "agentstate serve" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "http://x:port", "[::1"])
def test_a_url_that_is_none_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "list", "--url", url]) == 2
    assert "--url: expected http://HOST:PORT" in capsys.readouterr().err
