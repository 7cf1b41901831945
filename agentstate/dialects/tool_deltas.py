"""Which tool call a streamed piece belongs to, in OpenAI's chat form and what is called compatible.

By the book a piece carries the index of its call, and the first one its id and name. Real upstreams
leave out the index or the id, send an empty name with every piece, give two calls one index or one
id, or send the name last. What is here was learned from such streams; the rules are in `_find`.
The counterpart is `openai_chat.py`, which feeds it the `tool_calls` and `function_call` fields.
Invariant: every piece of name and arguments ends up in exactly one call, in the order it came.
"""

from __future__ import annotations

from agentstate.dialects.lenient import as_integer, as_object, as_text, join_text
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import ToolCall
from agentstate.ground.errors import BadRequest


class CallBuilder:
    """One tool call of one choice, as far as it has arrived."""

    __slots__ = ("_pieces", "call_id", "index", "is_legacy", "kind", "latest", "name", "position")

    def __init__(self, position: int, *, is_legacy: bool = False) -> None:
        self.position = position
        self.is_legacy = is_legacy  # came as `function_call`, which has no id
        self.call_id: str | None = None  # None = none was sent so far
        self.index: int | None = None  # the first one that a piece of it said; None = none did
        self.name = ""
        self.kind = "function"
        self.latest = ""  # what the last piece added to the arguments
        self._pieces: list[str] = []

    @property
    def has_arguments(self) -> bool:
        """Whether any of its arguments have arrived."""
        return bool(self._pieces)

    @property
    def arguments(self) -> str:
        """The text of the arguments so far."""
        return join_text(self._pieces)

    def build(self) -> ToolCall:
        """Return the call in neutral form."""
        return ToolCall(self.position, self.call_id, self.name, self.arguments, self.kind)

    def take(self, delta: dict[str, JSON], name: str) -> None:
        """Append what a piece says, in the function's, the custom tool's or the legacy form."""
        self.latest = ""
        custom: dict[str, JSON] = {}
        function = delta
        if not self.is_legacy:
            function, custom = as_object(delta.get("function")), as_object(delta.get("custom"))
            self.kind = as_text(delta.get("type")) or ("custom" if custom else self.kind)
        text = function.get("arguments")
        if text is None:
            text = custom.get("input")
        # Some repeat the whole name with every piece; others cut it in two.
        if name and name != self.name:
            self.name += name
        if text is not None:
            self.latest = text if isinstance(text, str) else write_arguments(text)
        if self.latest:
            self._pieces.append(self.latest)


class ToolDeltas:
    """The tool calls of one choice, in the order they were opened."""

    __slots__ = ("_by_id", "_by_index", "_legacy", "_open", "calls")

    def __init__(self) -> None:
        self.calls: list[CallBuilder] = []
        self._by_id: dict[str, CallBuilder] = {}
        self._by_index: dict[int, CallBuilder] = {}
        self._legacy: CallBuilder | None = None
        self._open: CallBuilder | None = None  # the one that got the last piece

    def feed(self, delta: dict[str, JSON]) -> CallBuilder:
        """Take in one piece from a stream and return the call it belongs to."""
        index, call_id, name = _read_head(delta)
        call = self._find(index, call_id, name) or self._start()
        call.take(delta, name)
        if index is not None:
            self._by_index[index] = call
            call.index = index if call.index is None else call.index
        if call_id is not None:
            call.call_id = call.call_id or call_id
            self._by_id[call_id] = call
        self._open = call
        return call

    def find(self, delta: dict[str, JSON]) -> CallBuilder | None:
        """Return the call that a piece would belong to if it came now; None = it opens one."""
        return self._find(*_read_head(delta))

    def add(self, whole: dict[str, JSON]) -> CallBuilder:
        """Take in a whole call from an answer that was not streamed."""
        call = self._start()
        call.call_id = as_text(whole.get("id"))
        call.take(whole, read_name(whole))
        return call

    def feed_legacy(self, delta: dict[str, JSON]) -> CallBuilder:
        """Take in a piece of the choice's one `function_call`."""
        if self._legacy is None:
            self._legacy = CallBuilder(len(self.calls), is_legacy=True)
            self.calls.append(self._legacy)
        self._legacy.take(delta, as_text(delta.get("name")) or "")
        return self._legacy

    def _find(self, index: int | None, call_id: str | None, name: str) -> CallBuilder | None:
        """Return the open call that a piece continues; None = it opens a new one."""
        at = self._open if index is None else self._by_index.get(index)
        if call_id is not None:
            # 1. A known id names its call, whatever the index says. But a name at an unused index
            #    is another call: some models give all their calls one id.
            known = self._by_id.get(call_id)
            if known is not None:
                is_other = bool(name) and index is not None and at is None
                return None if is_other else known
            # 2. A new id belongs to the call at its place if that has none yet. Else it opens a
            #    call, also on a used index.
            if at is None or at.call_id is not None or (name and at.has_arguments):
                return None
            return at
        if index is None:
            # 3. Neither index nor id: it continues the open call, unless it names a second one.
            if at is None or not name or not at.name:
                return at
            is_repeat = name == at.name and (at.call_id is not None or not at.has_arguments)
            return at if is_repeat else None
        # 4. An index alone: the call there. At an unused one, a piece with no name belongs to the
        #    call that was just opened, if its own index collided or was left out.
        if at is None and not name and self._waits_elsewhere():
            return self._open
        return at

    def _waits_elsewhere(self) -> bool:
        """Say whether the call that was just opened may get its arguments at another index."""
        call = self._open
        if call is None or call.has_arguments:
            return False
        return call.index is None or any(
            other is not call and other.index == call.index for other in self.calls
        )

    def _start(self) -> CallBuilder:
        call = CallBuilder(len(self.calls))
        self.calls.append(call)
        return call


def write_arguments(value: JSON) -> str:
    """Return the text of arguments sent as an object (Ollama's own form, and some who copy it)."""
    try:
        return encode(value).decode("ascii")
    except BadRequest:
        return "nested too deeply"  # no JSON, so that a gate takes them for malformed


def _read_head(delta: dict[str, JSON]) -> tuple[int | None, str | None, str]:
    return as_integer(delta.get("index")), as_text(delta.get("id")), read_name(delta)


def read_name(delta: dict[str, JSON]) -> str:
    """Return the name, or the part of one, that a piece says; '' = none."""
    names = (as_object(delta.get(form)).get("name") for form in ("function", "custom"))
    return next(filter(None, map(as_text, names)), "")
