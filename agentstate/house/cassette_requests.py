"""Requests as a cassette has them: what is new since one before. Pure.

`Folder` writes and `Unfolder` reads; both remember the last requests of a session. The invariant:
what was folded comes back as the same value, numbers as they were sent. The order of its fields may
be another, which says nothing; that of everything in them stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest

BACK_MAX = 16  # steps that `like` looks back; as many agents may take turns in a session
SHARED_BYTES_MIN = 64  # sharing less makes a line harder to read, and hardly shorter


@dataclass(frozen=True, slots=True)
class _Seen:
    """A request, each field and each item of its list as text: Python takes 1 and true for one."""

    dialect: str
    body: dict[str, JSON]
    fields: dict[str, bytes]
    items: tuple[bytes, ...]


class Folder:
    """Folds the requests of one session, in order."""

    def __init__(self) -> None:
        self._seen: deque[_Seen] = deque(maxlen=BACK_MAX)

    def fold(self, dialect: str, list_key: str, body: JSON) -> dict[str, JSON]:
        """Return the keys that stand for a request; `list_key` '' = none of its lists grows."""
        if not isinstance(body, dict):
            return {"request": body}
        new = _seen(dialect, list_key, body)
        found: dict[str, JSON] = {"request": body}
        best = 0
        for back, old in enumerate(reversed(self._seen), 1):
            if old.dialect != dialect:
                continue
            keep = _shared_items(old, new)
            weight = _shared_bytes(old, new, list_key, keep)
            # Of equal ones the nearest: that is the one that was asked before.
            if weight >= SHARED_BYTES_MIN and weight > best:
                found, best = _folded(old, new, list_key, keep, back), weight
        self._seen.append(new)
        return found


class Unfolder:
    """Unfolds the requests of one session, in order."""

    def __init__(self) -> None:
        self._seen: deque[tuple[JSON, str]] = deque(maxlen=BACK_MAX)

    def unfold(self, dialect: str, list_key: str, line: Mapping[str, JSON]) -> JSON:
        """Return the request that a line stands for.

        Raises:
            BadRequest: it goes on from what is not there; the message begins in the middle.
        """
        body = self._unfolded(dialect, list_key, line)
        self._seen.append((body, dialect))
        return body

    def kept(self, line: Mapping[str, JSON]) -> tuple[int, int]:
        """Return (how many steps back, how many items of its list) a line shares; (0, 0) = none."""
        like, keep = line.get("like", 0), line.get("keep", 0)
        return (like, keep) if isinstance(like, int) and isinstance(keep, int) else (0, 0)

    def _unfolded(self, dialect: str, list_key: str, line: Mapping[str, JSON]) -> JSON:
        request, without = line["request"], line.get("without", [])
        if "like" not in line:
            if "keep" in line or "without" in line:
                raise BadRequest("keep and without go with like")
            return request
        like, keep = line["like"], line.get("keep", 0)
        if type(like) is not int or not 1 <= like <= len(self._seen):
            raise BadRequest(
                f"like must say how many steps before, from 1 to {len(self._seen)} here"
            )
        old, old_dialect = self._seen[-like]
        if not (isinstance(old, dict) and isinstance(request, dict)) or old_dialect != dialect:
            raise BadRequest(f"the step {like} before has a request of another form")
        if not isinstance(without, list):
            raise BadRequest("without must be a list of names")
        body = {key: value for key, value in old.items() if key not in without} | request
        if keep == 0:
            return body
        before, after = old.get(list_key), request.get(list_key)
        if not (isinstance(before, list) and isinstance(after, list)):
            raise BadRequest(f"keep goes with a list of {list_key}")
        if type(keep) is not int or not 0 < keep <= len(before):
            raise BadRequest(f"keep must be from 1 to {len(before)}, which is what there is")
        body[list_key] = [*before[:keep], *after]
        return body


def _seen(dialect: str, list_key: str, body: dict[str, JSON]) -> _Seen:
    listed = body.get(list_key)
    items = tuple(map(encode, listed)) if isinstance(listed, list) else ()
    fields = {key: encode(value) for key, value in body.items() if not (key == list_key and items)}
    if items:
        fields[list_key] = b""  # what it holds is in the items
    return _Seen(dialect, body, {key: fields[key] for key in body}, items)


def _shared_items(old: _Seen, new: _Seen) -> int:
    count = 0
    for mine, theirs in zip(new.items, old.items, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _shared_bytes(old: _Seen, new: _Seen, list_key: str, keep: int) -> int:
    """Return how much need not be written again."""
    alike = sum(
        len(value)
        for key, value in new.fields.items()
        if key != list_key and old.fields.get(key) == value
    )
    return alike + sum(map(len, new.items[:keep]))


def _folded(old: _Seen, new: _Seen, list_key: str, keep: int, back: int) -> dict[str, JSON]:
    request: dict[str, JSON] = {}
    for key, value in new.body.items():
        if key == list_key and keep:
            if not (keep == len(new.items) == len(old.items)):
                assert isinstance(value, list), "it has items"
                request[key] = value[keep:]
        elif (
            key not in old.fields
            or old.fields[key] != new.fields[key]
            or (key == list_key and (old.items or new.items))
        ):
            request[key] = value
    found: dict[str, JSON] = {"like": back}
    if list_key in request and keep:
        found["keep"] = keep
    without: list[JSON] = [key for key in old.fields if key not in new.fields]
    if without:
        found["without"] = without
    return {**found, "request": request}
