"""Requests in the record: written once, read back whole.

A request is stored as an envelope (all of it but its messages) and a node (its messages: a part and
the node before it). A call that adds two messages to five hundred looks up a handful of nodes and
writes two. Parts are stored once each, whichever requests contain them; those that follow an answer
are packed with it, since the first of them mostly repeats it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.records import Part, RequestRecord
from agentstate.ground.redaction import Redactor
from agentstate.store.base import rebuild_body
from agentstate.store.sqlite_pack import (
    Packed,
    name_envelope,
    name_part,
    name_prefixes,
    pack,
    pack_after,
    unpack,
    unpack_after,
    weigh,
)

# New parts that are heavier together are packed in a thread of their caller: 64 KiB take about
# 2 ms, in which nobody else's answer would be committed.
HEAVY_BYTES = 64 * 1024
# A longer answer is not used to pack what came after it: it would have to be unpacked each time.
ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class HeavyParts:
    """What of a request is to be packed before it can be written."""

    envelope_name: bytes
    envelope: bytes
    parts: Mapping[bytes, Part]
    redactor: Redactor

    def pack(self) -> dict[bytes, Packed]:
        """Pack all of it; what `RequestRecorder.store` takes."""
        packed = {
            name: pack(encode(self.redactor.value(part.value))) for name, part in self.parts.items()
        }
        packed[self.envelope_name] = pack(self.envelope)
        return packed


@dataclass(frozen=True, slots=True)
class Plan:
    """What of a request is on record, and what has to be written."""

    request: RequestRecord
    prefixes: list[bytes]  # the name of each prefix of the chain
    known_count: int  # parts of the chain that are on record as a prefix
    node_id: int | None  # of the known prefix; None = nothing of the chain is known
    envelope: bytes
    envelope_name: bytes
    envelope_id: int | None  # None = new
    new_parts: dict[bytes, Part]  # by name
    blob_ids: dict[bytes, int]  # of the other parts that are needed, by name

    def heavy(self) -> HeavyParts | None:
        """Return what is to be packed elsewhere; None = it is little enough to be done at once."""
        total = len(self.envelope) if self.envelope_id is None else 0
        for part in self.new_parts.values():
            total += weigh(part.value, HEAVY_BYTES)
        if total < HEAVY_BYTES:
            return None
        return HeavyParts(self.envelope_name, self.envelope, self.new_parts, self.request.redactor)


class RequestRecorder:
    """Writes requests; runs in the writer thread, in the transaction of a claim."""

    def __init__(self, execute: Callable[[str, Sequence[object]], sqlite3.Cursor]) -> None:
        self._execute = execute

    _FIND_ENVELOPE = "select id from envelope where digest = ?"

    _FIND_BLOB = "select id from blob where digest = ?"

    def plan(self, request: RequestRecord) -> Plan:
        """Look up what of a request is on record. Reads only."""
        prefixes = name_prefixes(request.chain)
        known_count, node_id = self._known_prefix(prefixes)
        envelope = encode(request.redactor.value(request.envelope))
        envelope_name = name_envelope(request, envelope)
        envelope_id = self._maybe_id(self._FIND_ENVELOPE, envelope_name)
        needed = list(request.chain[known_count:])
        if envelope_id is None:
            needed += (part for _, part in request.shared)
        new_parts: dict[bytes, Part] = {}
        blob_ids: dict[bytes, int] = {}
        for part in needed:
            name = name_part(part)
            blob_id = self._maybe_id(self._FIND_BLOB, name)
            if blob_id is None:
                new_parts[name] = part
            else:
                blob_ids[name] = blob_id
        return Plan(
            request=request,
            prefixes=prefixes,
            known_count=known_count,
            node_id=node_id,
            envelope=envelope,
            envelope_name=envelope_name,
            envelope_id=envelope_id,
            new_parts=new_parts,
            blob_ids=blob_ids,
        )

    _FIND_NODE = "select id from node where digest = ?"

    def _known_prefix(self, prefixes: Sequence[bytes]) -> tuple[int, int | None]:
        """Return how many parts of a chain are on record as a prefix, and its node.

        A node is never without its parent, so whatever is longer than a missing prefix is missing.
        A call mostly adds one or two messages to the one before: look from the end, in growing
        strides, then halve the gap.
        """
        known, missing, stride = len(prefixes), len(prefixes) + 1, 1
        node_id: int | None = None
        while known > 0:
            node_id = self._maybe_id(self._FIND_NODE, prefixes[known - 1])
            if node_id is not None:
                break
            missing = known
            known = max(0, known - stride)
            stride *= 2
        while missing - known > 1:
            middle = (known + missing) // 2
            found = self._maybe_id(self._FIND_NODE, prefixes[middle - 1])
            if found is None:
                missing = middle
            else:
                known, node_id = middle, found
        return known, node_id

    _ADD_BLOB = "insert into blob (digest, answer_id, size, content) values (?, ?, ?, ?)"

    _ADD_NODE = "insert into node (digest, parent_id, blob_id, depth) values (?, ?, ?, ?)"

    def store(self, plan: Plan, packed: Mapping[bytes, Packed]) -> tuple[int, int | None]:
        """Write what is new of a request; return the ids of its envelope and its node."""
        blob_ids = plan.blob_ids | self._add_blobs(plan, packed)
        envelope_id = plan.envelope_id
        if envelope_id is None:
            envelope_id = self._add_envelope(plan, packed, blob_ids)
        node_id = plan.node_id
        for depth, part in enumerate(plan.request.chain[plan.known_count :], plan.known_count + 1):
            node = (plan.prefixes[depth - 1], node_id, blob_ids[name_part(part)], depth)
            node_id = self._insert(self._ADD_NODE, node)
        return envelope_id, node_id

    # The answer to the request that this one goes on from.
    _FIND_ANSWER_BEFORE = """
        select answer.id, answer.size, answer.content
        from step
        join answer on answer.id = step.answer_id
        where step.node_id = ? and answer.size <= ?
        order by step.id desc
        limit 1
        """

    def _add_blobs(self, plan: Plan, packed: Mapping[bytes, Packed]) -> dict[bytes, int]:
        answer_id: int | None = None
        answer = b""
        if plan.new_parts and plan.node_id is not None and not packed:
            before = (plan.node_id, ANSWER_BYTES_MAX)
            row = self._execute(self._FIND_ANSWER_BEFORE, before).fetchone()
            if row is not None:
                answer_id = row[0]
                answer = unpack(row[1], row[2])
        clear = plan.request.redactor.value
        values: tuple[bytes, int | None, int, bytes]
        added: dict[bytes, int] = {}
        for name, part in plan.new_parts.items():
            if name in packed:
                values = (name, None, *packed[name])
            elif answer_id is None:
                values = (name, None, *pack(encode(clear(part.value))))
            else:
                values = (name, answer_id, *pack_after(encode(clear(part.value)), answer))
            added[name] = self._insert(self._ADD_BLOB, values)
        return added

    _ADD_ENVELOPE = "insert into envelope (digest, list_key, size, content) values (?, ?, ?, ?)"

    _ADD_ENVELOPE_PART = """
        insert into envelope_part (envelope_id, position, name, blob_id)
        values (?, ?, ?, ?)
        """

    def _add_envelope(
        self, plan: Plan, packed: Mapping[bytes, Packed], blob_ids: Mapping[bytes, int]
    ) -> int:
        name = plan.envelope_name
        size, content = packed[name] if name in packed else pack(plan.envelope)
        envelope = (name, plan.request.list_key, size, content)
        envelope_id = self._insert(self._ADD_ENVELOPE, envelope)
        for position, (key, part) in enumerate(plan.request.shared):
            place = (envelope_id, position, key, blob_ids[name_part(part)])
            self._execute(self._ADD_ENVELOPE_PART, place)
        return envelope_id

    def _maybe_id(self, statement: str, name: bytes) -> int | None:
        row = self._execute(statement, (name,)).fetchone()
        return row[0] if row else None

    def _insert(self, statement: str, values: Sequence[object]) -> int:
        row_id = self._execute(statement, values).lastrowid
        assert row_id is not None, "an insert has a row id"
        return row_id


_FIND_REQUEST = """
    select envelope.id, envelope.list_key, envelope.size, envelope.content, step.node_id
    from step
    join envelope on envelope.id = step.envelope_id
    where step.id = ?
    """

_LIST_SHARED = """
    select envelope_part.name, blob.size, blob.content, answer.size, answer.content
    from envelope_part
    join blob on blob.id = envelope_part.blob_id
    left join answer on answer.id = blob.answer_id
    where envelope_part.envelope_id = ?
    order by envelope_part.position
    """

_LIST_CHAIN = """
    with recursive prefix (parent_id, blob_id, depth) as (
      select parent_id, blob_id, depth
      from node
      where id = ?
      union all
      select node.parent_id, node.blob_id, node.depth
      from prefix
      join node on node.id = prefix.parent_id
    )
    select blob.size, blob.content, answer.size, answer.content
    from prefix
    join blob on blob.id = prefix.blob_id
    left join answer on answer.id = blob.answer_id
    order by prefix.depth
    """


def read_request(connection: sqlite3.Connection, step_id: int) -> JSON:
    """See `Store.read_request`. What a step points at is never changed, so no transaction."""
    row = connection.execute(_FIND_REQUEST, (step_id,)).fetchone()
    if row is None:
        return None
    envelope_id, list_key, size, content, node_id = row
    shared = connection.execute(_LIST_SHARED, (envelope_id,)).fetchall()
    chain = connection.execute(_LIST_CHAIN, (node_id,)).fetchall()
    return rebuild_body(
        parse(unpack(size, content)),
        [(name, _part(*columns)) for name, *columns in shared],
        list_key,
        [_part(*columns) for columns in chain],
    )


def _part(size: int, content: bytes, answer_size: int | None, answer: bytes | None) -> JSON:
    """Unpack a part; `answer` is the one it was packed with, if any."""
    if answer_size is None or answer is None:
        return parse(unpack(size, content))
    return parse(unpack_after(size, content, unpack(answer_size, answer)))
