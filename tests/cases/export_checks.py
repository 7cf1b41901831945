"""The checks of what a case comes out as when it is exported; `checks.py` has the index of all."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any
from urllib.parse import quote

from tests.cases.playing import Play
from tests.helpers.proxy import WAIT_TIMEOUT_S
from tests.helpers.training_lines import faults, split_lines

_ENDED_EARLY = ("length", "content_filter", "model_context_window_exceeded")
_SAFE_NAME = re.compile(r'attachment; filename="[A-Za-z0-9_-][A-Za-z0-9._-]*\.jsonl"')
_OURS = ("sk-", "x-agent", "approval", "chatcmpl")


def check_export(playing: Play, wanted: str | dict[str, Any]) -> None:
    """Check a sentence about the export, or each key of what is expected of it."""
    if isinstance(wanted, str):
        _SENTENCES[wanted](playing)
        return
    raw = _export(playing)
    for key, value in wanted.items():
        _KEYS[key](playing, raw, value)


def _export(playing: Play) -> bytes:
    """Export the case's session; each line must be one that a trainer takes."""
    playing.proxy.settled_steps(playing.session)
    status, raw = playing.proxy.get(f"/api/sessions/{quote(playing.session, safe='')}/export")
    assert status == 200, raw
    assert [faults(line, "openai") for line in split_lines(raw) if faults(line, "openai")] == []
    return raw


def _one_line(playing: Play) -> dict[str, Any]:
    [line] = split_lines(_export(playing))
    value: dict[str, Any] = json.loads(line)
    return value


# --- sentences ------------------------------------------------------------------------------------


def _is_strict(playing: Play) -> None:
    line = _one_line(playing)
    assert line["messages"][-1] == {"role": "assistant", "content": "ok"}


def _refusal_kept(playing: Play) -> None:
    # Fine-tuning has no other place for it than the content.
    assert _one_line(playing)["messages"][-1]["content"] == "I can't help."


def _ended_early_left_out(playing: Play) -> None:
    count = len(split_lines(_export(playing)))
    is_answer = playing.step["state"] == "complete"
    assert count == (1 if is_answer and playing.case.variant not in _ENDED_EARLY else 0)


def _file_name_safe(playing: Play) -> None:
    if playing.first.status != 200:
        return  # the name is refused, and no session has it
    _export(playing)
    connection = http.client.HTTPConnection(*playing.proxy.address, timeout=WAIT_TIMEOUT_S)
    try:
        connection.request("GET", f"/api/sessions/{quote(playing.session, safe='')}/export")
        response = connection.getresponse()
        response.read()
        named = response.getheader("content-disposition") or ""
    finally:
        connection.close()
    assert _SAFE_NAME.fullmatch(named), named
    assert ".." not in named


def _valid_utf8(playing: Play) -> None:
    asked, answer = _one_line(playing)["messages"]
    assert asked["content"] == "cut \ud83d"
    assert answer["content"] == "\U0001f600 \udc81"


_SENTENCES = {
    "line is strict JSON: NaN/Infinity replaced by null or the field left out": _is_strict,
    "refusal kept as refusal, not as empty content": _refusal_kept,
    "steps that ended by length/content_filter/model_context_window_exceeded are marked or left "
    "out of training data": _ended_early_left_out,
    "Content-Disposition file name is safe, no path traversal": _file_name_safe,
    "valid UTF-8": _valid_utf8,
}


# --- keys -----------------------------------------------------------------------------------------


def _lines(playing: Play, raw: bytes, wanted: int) -> None:
    assert len(split_lines(raw)) == wanted


def _escaped(playing: Play, raw: bytes, wanted: list[str]) -> None:
    for escape in wanted:
        assert escape.encode() in raw
        assert json.loads(f'"{escape}"').encode() not in raw


def _newline(playing: Play, raw: bytes, wanted: str) -> None:
    assert wanted == "\\n only, UTF-8, no BOM, final newline"
    assert raw.endswith(b"\n")
    assert b"\r" not in raw
    assert len(raw.decode("utf-8").splitlines()) == len(split_lines(raw))
    assert raw[:1] == b"{"


def _same_after_parse(playing: Play, raw: bytes, wanted: bool) -> None:
    assert wanted
    said = playing.case.client["body"]["messages"]
    answer = playing.case.upstream[0]["body"]["choices"][0]["message"]
    [line] = split_lines(raw)
    assert json.loads(line) == {"messages": [*said, answer]}


def _object_keys(playing: Play, raw: bytes, wanted: list[str]) -> None:
    assert [list(json.loads(line)) for line in split_lines(raw)] == [wanted]


def _last_role(playing: Play, raw: bytes, wanted: str) -> None:
    assert json.loads(raw)["messages"][-1]["role"] == wanted


def _call_message(playing: Play, raw: bytes, wanted: str) -> None:
    assert wanted == "content present (null), arguments a string"
    [message] = [each for each in json.loads(raw)["messages"] if "tool_calls" in each]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def _results_follow(playing: Play, raw: bytes, wanted: bool) -> None:
    assert wanted
    messages = json.loads(raw)["messages"]
    [at] = [at for at, message in enumerate(messages) if message["role"] == "tool"]
    assert messages[at]["content"] == "5C"
    assert messages[at]["tool_call_id"] == messages[at - 1]["tool_calls"][0]["id"]


def _nothing_of_ours(playing: Play, raw: bytes, wanted: bool) -> None:
    assert wanted
    text = raw.decode().lower()
    assert [word for word in (*_OURS, playing.session.lower()) if word in text] == []


def _no_pictures(playing: Play, raw: bytes, wanted: bool) -> None:
    assert wanted
    assert b"base64" not in raw


_KEYS = {
    "lines": _lines,
    "escaped": _escaped,
    "newline": _newline,
    "json_equal_after_parse": _same_after_parse,
    "object_keys": _object_keys,
    "last_role": _last_role,
    "assistant_tool_message": _call_message,
    "every_tool_message_follows_its_call": _results_follow,
    "no_proxy_ids_or_keys": _nothing_of_ours,
    "no_base64_images_unless_asked": _no_pictures,
}
