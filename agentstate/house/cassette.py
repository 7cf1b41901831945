"""What a cassette is: one or several sessions in a file of lines that people read and compare.

    {"format":"agentstate-cassette","version":1}
    {"session":"invoice-run-42","name":"Invoices","tags":{"team":"ops"}}
    {"dialect":"openai_chat","path":"/v1/chat/completions",…,"keys":{…},"request":{…},"answer":{…}}
    …
    {"end":{"sessions":1,"steps":12}}

A line is a JSON object. Nothing in it changes by itself from one recording to the next: no times,
no ids of rows, no numbers that only count lines. So what differs between two recordings differs for
a reason. The last line says what there was, or a file that was cut would pass for a whole one.

A request mostly repeats the one before. `like` says how many steps before in its session there is
one that it shares with; then `request` has the fields that differ, `without` names those it lacks,
and of its list of messages `keep` are taken from there. `keys` are the fingerprints of the request
as it was sent: what was taken out of it as a secret changes nothing about what it matches.

`cassette_write.py` and `cassette_read.py` write and read lines; `cassette_content.py` says how
answers stand in them; `cassette_export.py` and `cassette_import.py` know the record.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.ground.canonical import JSON
from agentstate.ground.control import About
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import Identity, RecordedAnswer

FORMAT = "agentstate-cassette"
VERSION = 1
MEDIA_TYPE = b"application/x-ndjson"
CASSETTE_BYTES_MAX = 64 * 1024 * 1024  # ten thousand steps of an agent without pictures


@dataclass(frozen=True, slots=True)
class Taped:
    """A session as a cassette has it, without its steps."""

    session: str
    about: About


@dataclass(frozen=True, slots=True)
class Timing:
    """How long an answer took; how fast a stream came is in `RecordedAnswer.pace`."""

    latency_ms: int
    first_content_ms: int | None  # None = it was no stream


@dataclass(frozen=True, slots=True)
class Take:
    """A step as a cassette has it."""

    step_number: int
    dialect: str
    path: str
    model: str  # as it was asked for
    streams: bool
    is_mock: bool
    identity: Identity
    request: JSON
    answer: RecordedAnswer  # what the agent got; of its headers the type of its content
    provider: str
    answered_by: str  # the model, as who answered named it
    cost_microusd: int | None  # None = it is not known
    timing: Timing | None = None  # None = it was not asked for


class BadCassette(BadRequest):
    """A line is not what it should be; the message says which, what was expected and found."""

    code = "bad_cassette"
