"""Training data over HTTP: the file, the report, the manifest, and what is refused."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterator
from email.message import Message
from typing import Any
from urllib.parse import quote

import pytest

from agentstate.doors.api import export as api
from agentstate.doors.api.export import QUERY, file_name, read_wanted
from agentstate.ground.errors import BadRequest, StoreError
from agentstate.house.export_base import FORMATS, Wanted
from tests.helpers.approvals import Desk
from tests.helpers.runs import TOOL, call, record, record_run, say
from tests.helpers.training_lines import faults, split_lines
from tests.store.contract import START_MS

DATASET = "/api/export/dataset"
KEY = "sk-" + "a1B2" * 10


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


def ask(desk: Desk, path: str, method: str = "GET") -> tuple[int, Message, bytes]:
    """Ask the server; return status, headers and body."""
    connection = http.client.HTTPConnection(desk.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def data_of(desk: Desk, query: str = "", path: str = DATASET) -> bytes:
    status, _, body = ask(desk, f"{path}?{query}")
    assert status == 200, body
    return body


def json_of(desk: Desk, query: str, path: str = DATASET) -> Any:
    return json.loads(data_of(desk, query, path))


# -- the file


def test_a_run_comes_out_as_the_conversation_that_took_place(desk: Desk) -> None:
    said = desk.run(record_run(desk.store))

    status, headers, body = ask(desk, "/api/sessions/s/export")

    assert status == 200
    assert headers["content-type"] == "application/jsonl"
    assert headers["content-disposition"] == 'attachment; filename="s-openai.jsonl"'
    assert headers["cache-control"] == "no-store"
    [line] = split_lines(body)
    assert faults(line, "openai") == ()
    assert json.loads(line) == {"messages": said, "tools": [TOOL]}


def test_all_sessions_are_in_the_data_set_and_equal_ones_once(desk: Desk) -> None:
    for session, asks in (("a", "rain?"), ("b", "snow?"), ("c", "snow?")):
        desk.run(record_run(desk.store, session=session, asks=asks))

    assert len(split_lines(data_of(desk))) == 2
    assert len(split_lines(data_of(desk, "dedupe=0"))) == 3
    _, headers, _ = ask(desk, DATASET)
    assert headers["content-disposition"] == 'attachment; filename="agentstate-openai.jsonl"'


@pytest.mark.parametrize("form", ["openai", "trl", "axolotl"])
def test_each_form_keeps_its_rules(desk: Desk, form: str) -> None:
    desk.run(record_run(desk.store))

    [line] = split_lines(data_of(desk, f"format={form}"))

    assert faults(line, form) == ()
    arguments = json.loads(line)["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert arguments == ({"city": "Bern"} if form == "trl" else '{"city": "Bern"}')


def test_an_empty_record_is_an_empty_file(desk: Desk) -> None:
    for form in FORMATS:
        assert data_of(desk, f"format={form}") == b""


def test_a_head_alone_may_be_asked_for(desk: Desk) -> None:
    desk.run(record_run(desk.store))

    status, headers, body = ask(desk, DATASET, "HEAD")

    assert (status, body) == (200, b"")
    assert headers["content-type"] == "application/jsonl"


def test_a_file_of_many_lines_comes_whole(desk: Desk) -> None:
    for number in range(150):
        desk.run(
            record(
                desk.store,
                [say(f"{number} " + "x" * 2000)],
                say("ok", "assistant"),
                session=f"s{number}",
            )
        )

    found = [json.loads(line)["messages"][0]["content"] for line in split_lines(data_of(desk))]

    assert [text.split()[0] for text in found] == [str(number) for number in range(150)]


def test_filters_are_handed_on(desk: Desk) -> None:
    desk.run(record_run(desk.store))
    before, after = START_MS - 1, START_MS + 1

    for query, count in (
        ("tool=get_*", 1),
        ("tool=send_*", 0),
        ("model=gpt-*", 1),
        ("model=claude-*", 0),
        (f"since={before}&until={after}", 1),
        (f"since={after}", 0),
        ("touched=0", 1),
        ("touched=1", 0),
        ("cost_max_usd=1", 1),
        ("cost_max_usd=0.000001", 0),
        ("status=RUNNING", 1),
        ("status=COMPLETED", 0),
        ("search=S", 1),
        ("search=x", 0),
        ("parent=x", 0),
        ("forked_from=x", 0),
    ):
        assert data_of(desk, query).count(b"\n") == count, query


def test_a_split_gives_each_part_its_lines(desk: Desk) -> None:
    for number in range(40):
        desk.run(record_run(desk.store, session=str(number), asks=f"{number}?"))

    query = "split=0.3&seed=7"
    train = split_lines(data_of(desk, query + "&part=train"))
    validation = split_lines(data_of(desk, query + "&part=validation"))
    whole = split_lines(data_of(desk, query))

    assert sorted(train + validation) == sorted(whole)
    assert len(whole) == 40
    assert 0 < len(validation) < 20
    _, headers, _ = ask(desk, f"{DATASET}?{query}&part=validation")
    assert headers["content-disposition"].endswith('"agentstate-openai.validation.jsonl"')


# -- what is said of it


def test_a_report_has_findings_and_counts_and_no_data(desk: Desk) -> None:
    odd = call("call_9", '{"city":')
    desk.run(record_run(desk.store, session="good"))
    desk.run(record(desk.store, [say("go " + KEY)], say("fine", "assistant"), session="secret"))
    desk.run(record(desk.store, [say("private")], odd, session="broken", tools=[TOOL]))

    report = json_of(desk, "report=1")

    assert report["format"] == "openai"
    assert report["counts"]["lines"] == 2
    assert report["counts"]["left_out"] == 1
    assert report["counts"]["secrets"] == {"openai_key": 1}
    by_session = {line["session"]: line for line in report["lines"]}
    assert set(by_session) == {"secret", "broken"}
    assert by_session["secret"]["line"] == 2
    assert by_session["broken"]["is_left_out"] is True
    assert by_session["broken"]["findings"][-1] == {
        "code": "arguments_json",
        "path": "messages[1].tool_calls[0].function.arguments",
        "message": "The arguments are no JSON.",
        "is_mended": False,
    }
    assert "private" not in json.dumps(report)
    assert KEY not in json.dumps(report)


def test_a_report_names_what_could_not_be_taken_and_what_was_changed(desk: Desk) -> None:
    narrated = [say("a"), {"role": "narrator", "content": "private"}]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    shown = {"role": "user", "content": [{"type": "text", "text": "private"}, picture]}
    desk.run(record(desk.store, narrated, say("fine", "assistant"), session="odd"))
    desk.run(record(desk.store, [shown], say("fine", "assistant"), session="shown"))

    report = json_of(desk, "report=1")

    assert report["counts"]["lines"] == report["counts"]["sessions"] == 1
    assert report["counts"]["left_out"] == 0
    assert report["counts"]["not_taken"] == {"no_chat_form": 1}
    assert report["counts"]["findings"]["kept"] == {"image_marked": 1}
    odd, shown_line = report["lines"]
    assert (odd["line"], odd["session"], odd["index"], odd["is_left_out"]) == (None, "odd", 0, True)
    (finding,) = odd["findings"]
    assert (finding["code"], finding["path"]) == ("no_chat_form", "request.messages[1]")
    (finding,) = shown_line["findings"]
    assert (shown_line["line"], shown_line["session"]) == (1, "shown")
    assert (finding["code"], finding["path"]) == ("image_marked", "messages[0].content")
    assert "private" not in json.dumps(report)
    # Of a file it is no line, and no part of a split begins with it.
    assert len(split_lines(data_of(desk, ""))) == 1
    told = data_of(desk, "progress=1&split=0.5").decode().splitlines()
    assert not any(each.startswith('#{"part":null') for each in told)


def test_a_report_of_a_long_look_is_not_silent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "HEARTBEAT_S", 0.0)
    for number in range(3):
        desk.run(record_run(desk.store, session=str(number), asks=f"{number}?"))

    raw = data_of(desk, "report=1")

    assert raw.count(b"\n") == 3
    assert json.loads(raw)["counts"]["lines"] == 3


def test_a_manifest_fits_the_file(desk: Desk) -> None:
    desk.run(record_run(desk.store))
    data = data_of(desk)

    manifest = json_of(desk, "manifest=1")

    facts = manifest["files"]["all"]
    assert facts["lines"] == 1
    assert facts["bytes"] == len(data)
    assert facts["sha256"] == hashlib.sha256(data).hexdigest()


def test_progress_stands_between_the_lines_and_the_manifest_at_the_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PROGRESS_S", 0.0)
    for number in range(20):
        desk.run(record_run(desk.store, session=str(number), asks=f"{number}?"))

    raw = split_lines(data_of(desk, "progress=1&split=0.5"))

    told = [json.loads(line[1:]) for line in raw if line.startswith(b"#")]
    part, parts = None, {"train": b"", "validation": b""}
    for line in raw:
        if line.startswith(b"#"):
            part = json.loads(line[1:]).get("part", part)
        else:
            assert part is not None
            parts[part] += line
    manifest = told[-1]["manifest"]
    for name, data in parts.items():
        assert manifest["files"][name]["sha256"] == hashlib.sha256(data).hexdigest()
    assert [each for each in told if "of" in each][-1] == {"done": 20, "of": 20}
    [*_, one] = [
        json.loads(line[1:])
        for line in split_lines(data_of(desk, "progress=1", "/api/sessions/3/export"))
        if b'"of"' in line
    ]
    assert one == {"done": 2, "of": 2}


def test_a_record_that_cannot_be_read_on_cuts_the_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = api.lines

    async def cut(*arguments: Any) -> Any:
        async for line in whole(*arguments):
            yield line
        raise StoreError("the disk")

    monkeypatch.setattr(api, "lines", cut)
    desk.run(record_run(desk.store))

    for query in ("", "progress=1", "report=1"):
        with pytest.raises(http.client.IncompleteRead):
            ask(desk, f"{DATASET}?{query}")
    status, _, body = ask(desk, f"{DATASET}?manifest=1")
    assert status >= 500
    assert "error" in json.loads(body)


# -- names of files


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("a/b", "a-b-openai.jsonl"),
        ("../../etc/passwd", "etc-passwd-openai.jsonl"),
        ("x?y#z%2F", "x-y-z-2F-openai.jsonl"),
        ('"; filename="x', "filename-x-openai.jsonl"),
        ("<script>\r\n", "script-openai.jsonl"),
        ("会话", "session-openai.jsonl"),
        ("CON", "CON-openai.jsonl"),
        (". ", "session-openai.jsonl"),
        ("a" * 500, "a" * 80 + "-openai.jsonl"),
    ],
)
def test_a_file_name_is_safe(session: str, name: str) -> None:
    assert file_name(Wanted(session=session)) == name


def test_a_session_of_any_name_is_exported(desk: Desk) -> None:
    for session in ("a/b", "../../etc/passwd", "会话", "'; DROP TABLE steps;--"):
        desk.run(record_run(desk.store, session=session))

        status, _, body = ask(desk, f"/api/sessions/{quote(session, safe='')}/export")

        assert (status, body.count(b"\n")) == (200, 1)


# -- what is refused


def test_a_session_that_is_not_there_is_not_found(desk: Desk) -> None:
    status, headers, body = ask(desk, "/api/sessions/none/export")

    assert (status, headers["content-type"]) == (404, "application/json")
    assert json.loads(body)["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "query",
    [
        "format=csv", "status=DONE", "since=yesterday", "until=x", "model=[", "tool=",
        "touched=yes", "cost_max_usd=x", "cost_max_usd=-1", "cost_max_usd=NaN", "include=all",
        "dedupe=2",
        "images=true", "split=0", "split=1", "split=nan", "split=x", "seed=1", "part=train",
        "split=0.1&seed=-1", "split=0.1&part=test", "report=1&manifest=1", "tags=x", "tag=%09",
        "limit=5",
    ],
)  # fmt: skip
def test_a_parameter_that_is_none_is_refused_in_the_apis_shape(desk: Desk, query: str) -> None:
    status, _, body = ask(desk, f"{DATASET}?{query}")

    error = json.loads(body)["error"]
    assert status == 400
    assert set(error) == {"code", "message", "hint"}
    assert query.rpartition("&")[2].partition("=")[0] in error["message"]


def test_every_filter_is_read() -> None:
    asked = {
        "format": "kto",
        "status": "COMPLETED",
        "tag": "team=red,night",
        "search": "inv",
        "parent": "boss",
        "forked_from": "first",
        "since": "2026-11-30",
        "until": "2026-11-30T12:00:00+01:00",
        "model": "gpt-*",
        "tool": "get_*",
        "cost_max_usd": "0.25",
        "touched": "1",
        "include": "failed,cut,rolled_back,replaced",
        "dedupe": "0",
        "images": "1",
        "split": "0.1",
        "seed": "7",
        "part": "train",
    }
    ways = {"report", "manifest", "progress"}
    assert set(asked) == {field.name for field in QUERY} - ways

    assert read_wanted(asked, "s") == Wanted(
        format="kto",
        session="s",
        status="COMPLETED",
        tags=(("team", "red"), ("night", None)),
        search="inv",
        parent="boss",
        forked_from="first",
        since_ms=1_795_996_800_000,
        until_ms=1_796_036_400_000,
        model="gpt-*",
        tool="get_*",
        cost_max_microusd=250_000,
        touched=True,
        include_failed=True,
        include_cut=True,
        include_rolled_back=True,
        include_replaced=True,
        dedupe=False,
        images=True,
        split=(0.1, 7),
        part="train",
    )
    assert read_wanted({}, None) == Wanted()
    assert read_wanted({"since": "1795996800000"}, None).since_ms == 1_795_996_800_000


def test_a_session_that_is_named_may_have_failed() -> None:
    assert read_wanted({}, "s").include_failed
    with pytest.raises(BadRequest):
        read_wanted({"include": "nothing"}, "s")
