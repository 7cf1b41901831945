"""A model that calls two tools at once, turn after turn, in every dialect; and its agents.

The model never answers twice alike and counts what it was asked. An agent starts from its first
question in each life and has no memory of the lives before; `dies_at` is the turn at which it has
run its tools and does not come to tell of them.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Received, Reply, Upstream, json_reply, sse_reply

Json = dict[str, Any]

TURNS = 4  # answers that call; the one after them does not
TOOLS = ("look_up", "send_mail")
INPUT_TOKENS, OUTPUT_TOKENS = 5, 2  # of each answer
MODEL = "m"
GEMINI_PATH = "/v1beta/models/gemini-2.5-flash:generateContent"
SCHEMA: Json = {"type": "object", "properties": {"key": {"type": "string"}}}
TIMEOUT_S = 20.0


class Died(Exception):
    """The agent is gone, with what it did and told nobody of."""


# --- the model ------------------------------------------------------------------------------------


class CallingModel(Upstream):
    """Answers with a call of each tool until it has done so `turns` times."""

    def __init__(self, turns: int = TURNS) -> None:
        super().__init__()
        self.turns = turns
        self.paid = 0  # requests it was asked

    def reply_to(self, request: Received) -> Reply:
        body = request.json()
        with self._lock:
            serial, self.paid = self.paid, self.paid + 1
        # Only the one that goes on from an earlier one by its id does not say it in full.
        turn = sum(map(_is_models, body.get("messages") or body.get("contents") or []))
        if "input" in body:
            turn = sum(each.get("type") == "function_call" for each in body["input"]) // 2
            turn += int(str(body.get("previous_response_id") or "_0").rpartition("_")[2])
        calls = [(f"call_{serial}_{at}", tool) for at, tool in enumerate(TOOLS)]
        calls = calls if turn < self.turns else []
        if "contents" in body:
            return json_reply(_candidate(calls, serial))
        if "input" in body:
            return json_reply(_response(calls, serial, turn + 1))
        if request.target.endswith("/messages"):
            return _messages(calls, serial, streams=bool(body.get("stream")))
        return _chat(calls, serial, streams=bool(body.get("stream")))


def _is_models(message: Json) -> bool:
    return message.get("role") in ("assistant", "model")


Calls = list[tuple[str, str]]


def arguments_of(call_id: str) -> Json:
    """Return what a call says."""
    return {"key": call_id}


def _chat(calls: Calls, serial: int, *, streams: bool) -> Reply:
    made = [
        {"id": i, "type": "function",
         "function": {"name": n, "arguments": json.dumps(arguments_of(i))}}
        for i, n in calls
    ]  # fmt: skip
    message: Json = {"role": "assistant", "content": None if made else f"done {serial}"}
    message |= {"tool_calls": made} if made else {}
    finish = "tool_calls" if made else "stop"
    head: Json = {"id": f"c{serial}", "created": 1, "model": MODEL}
    usage = {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    if not streams:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return json_reply(
            {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        )
    deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"tool_calls": [{"index": at, **call}]}, None) for at, call in enumerate(made)]
    if not made:
        deltas.append(({"content": message["content"]}, None))
    chunks: list[Json] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in [*deltas, ({}, finish)]
    ]
    chunks.append({"choices": [], "usage": usage})
    frames = [{**head, "object": "chat.completion.chunk", **chunk} for chunk in chunks]
    return sse_reply([*map(_frame, frames), b"data: [DONE]\n\n"])


def _frame(value: Json, event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _response(calls: Calls, serial: int, turn: int) -> Json:
    output: list[Json] = [
        {"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": n,
         "arguments": json.dumps(arguments_of(i)), "status": "completed"}
        for i, n in calls
    ]  # fmt: skip
    if not calls:
        part = {"type": "output_text", "text": f"done {serial}", "annotations": []}
        output = [{"type": "message", "id": f"msg_{serial}", "role": "assistant",
                   "status": "completed", "content": [part]}]  # fmt: skip
    usage = {
        "input_tokens": INPUT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": f"resp_{serial}_{turn}",
        "object": "response",
        "created_at": 1,
        "model": MODEL,
        "status": "completed",
        "output": output,
        "usage": usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _messages(calls: Calls, serial: int, *, streams: bool) -> Reply:
    blocks: list[Json] = [
        {"type": "tool_use", "id": i, "name": n, "input": arguments_of(i)} for i, n in calls
    ] or [{"type": "text", "text": f"done {serial}"}]
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    head = {"id": f"msg_{serial}", "type": "message", "role": "assistant", "model": MODEL}
    end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    if not streams:
        return json_reply({**head, "content": blocks, **end, "usage": usage})
    start = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[Json] = [{"type": "message_start", "message": start}]
    for at, block in enumerate(blocks):
        is_call = block["type"] == "tool_use"
        begun = {**block, "input": {}} if is_call else {**block, "text": ""}
        piece = {"type": "text_delta", "text": block.get("text")}
        if is_call:
            piece = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": at, "content_block": begun},
            {"type": "content_block_delta", "index": at, "delta": piece},
            {"type": "content_block_stop", "index": at},
        ]
    events.append(
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT_TOKENS}}
    )
    events.append({"type": "message_stop"})
    return sse_reply([_frame(event, event["type"]) for event in events])


def _candidate(calls: Calls, serial: int) -> Json:
    """Old models give calls no id."""
    parts: list[Json] = [
        {"functionCall": {"name": name, "args": arguments_of(call_id)}} for call_id, name in calls
    ] or [{"text": f"done {serial}"}]
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    usage = {
        "promptTokenCount": INPUT_TOKENS,
        "candidatesTokenCount": OUTPUT_TOKENS,
        "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    return {"candidates": [candidate], "modelVersion": MODEL, "usageMetadata": usage}


# --- agents ---------------------------------------------------------------------------------------


@dataclass
class Agent:
    """An agent of one session; `live` as often as you like."""

    proxy: Proxy
    session: str
    drifts: bool = False  # its tools answer otherwise in each life
    lives: int = 0
    ran: list[str] = field(default_factory=list)  # keys of the tools that this life ran

    def use(self, name: str, key: str) -> str:
        """Run a tool."""
        self.ran.append(key)
        return f"{name} of {key}" + (f" in life {self.lives}" if self.drifts else "")

    def live(self, dies_at: int | None = None) -> str:
        """Run from the beginning; return what it was told at the end. Raises `Died`."""
        self.lives += 1
        self.ran = []
        return self._run(dies_at)

    def _run(self, dies_at: int | None) -> str:
        raise NotImplementedError

    @property
    def headers(self) -> dict[str, str]:
        return {"x-agent-session-id": self.session}


class ChatAgent(Agent):
    """OpenAI's client; every other call is a stream."""

    def _run(self, dies_at: int | None) -> str:
        import openai

        tools: Any = [
            {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS
        ]
        messages: list[Any] = [{"role": "user", "content": "go"}]
        with openai.OpenAI(
            base_url=self.proxy.base_url, api_key="sk-test", default_headers=self.headers,
            max_retries=0, timeout=TIMEOUT_S,
        ) as client:  # fmt: skip
            for turn in range(99):
                create: Any = client.chat.completions.create
                if turn % 2:
                    text, calls = _read_stream(
                        create(model=MODEL, messages=messages, tools=tools, stream=True)
                    )
                else:
                    said = create(model=MODEL, messages=messages, tools=tools).choices[0].message
                    text, calls = (
                        said.content,
                        [each.model_dump() for each in said.tool_calls or []],
                    )
                if not calls:
                    return str(text)
                messages.append({"role": "assistant", "content": None, "tool_calls": calls})
                results = [
                    (each["id"], self.use(each["function"]["name"], _key(each["function"])))
                    for each in calls
                ]
                if turn == dies_at:
                    raise Died
                messages += [
                    {"role": "tool", "tool_call_id": call_id, "content": result}
                    for call_id, result in results
                ]
        raise AssertionError("the model never came to an end")


def _key(function: Json) -> str:
    return str(json.loads(function["arguments"])["key"])


def _read_stream(stream: Any) -> tuple[str, list[Json]]:
    text, calls = "", list[Json]()
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                function = {"name": call.function.name, "arguments": call.function.arguments}
                calls.append({"id": call.id, "type": "function", "function": function})
    return text, calls


class ResponsesAgent(Agent):
    """OpenAI's client for Responses, which sends all of it each time."""

    is_chained = False

    def _run(self, dies_at: int | None) -> str:
        import openai

        tools: Any = [
            {"type": "function", "name": name, "parameters": SCHEMA, "strict": False}
            for name in TOOLS
        ]
        items: list[Any] = [{"role": "user", "content": "go"}]
        link: Json = {}
        with openai.OpenAI(
            base_url=self.proxy.base_url, api_key="sk-test", default_headers=self.headers,
            max_retries=0, timeout=TIMEOUT_S,
        ) as client:  # fmt: skip
            for turn in range(99):
                create: Any = client.responses.create
                answer = create(model=MODEL, input=items, tools=tools, **link)
                calls = [each for each in answer.output if each.type == "function_call"]
                if not calls:
                    return str(answer.output_text)
                results: list[Any] = [
                    {"type": "function_call_output", "call_id": each.call_id,
                     "output": self.use(each.name, str(json.loads(each.arguments)["key"]))}
                    for each in calls
                ]  # fmt: skip
                if turn == dies_at:
                    raise Died
                if self.is_chained:
                    items, link = results, {"previous_response_id": answer.id}
                else:
                    items += [each.model_dump(exclude_none=True) for each in answer.output]
                    items += results
        raise AssertionError("the model never came to an end")


class ChainedAgent(ResponsesAgent):
    """The same, going on from the id of the response before."""

    is_chained = True


class MessagesAgent(Agent):
    """Anthropic's client; every other call is a stream."""

    def _run(self, dies_at: int | None) -> str:
        import anthropic

        tools: Any = [{"name": name, "input_schema": SCHEMA} for name in TOOLS]
        messages: list[Any] = [{"role": "user", "content": "go"}]
        with anthropic.Anthropic(
            base_url=self.proxy.url, api_key="sk-ant-test", default_headers=self.headers,
            max_retries=0, timeout=TIMEOUT_S,
        ) as client:  # fmt: skip
            for turn in range(99):
                asked: Any = {
                    "model": MODEL, "max_tokens": 99, "messages": messages, "tools": tools
                }  # fmt: skip
                if turn % 2:
                    with client.messages.stream(**asked) as stream:
                        said: Any = stream.get_final_message()
                else:
                    said = client.messages.create(**asked)
                blocks = [each.model_dump(exclude_none=True) for each in said.content]
                calls = [each for each in blocks if each["type"] == "tool_use"]
                if not calls:
                    return str(blocks[0]["text"])
                results = [
                    {"type": "tool_result", "tool_use_id": each["id"],
                     "content": self.use(each["name"], each["input"]["key"])}
                    for each in calls
                ]  # fmt: skip
                if turn == dies_at:
                    raise Died
                messages.append({"role": "assistant", "content": blocks})
                messages.append({"role": "user", "content": results})
        raise AssertionError("the model never came to an end")


class GeminiAgent(Agent):
    """Gemini's own form over a plain connection, of before calls had ids."""

    def _run(self, dies_at: int | None) -> str:
        contents: list[Json] = [{"role": "user", "parts": [{"text": "go"}]}]
        tools = [{"functionDeclarations": [{"name": n, "parameters": SCHEMA} for n in TOOLS]}]
        for turn in range(99):
            answer = self._post({"contents": contents, "tools": tools})
            content = answer["candidates"][0]["content"]
            calls = [each["functionCall"] for each in content["parts"] if "functionCall" in each]
            if not calls:
                return str(content["parts"][0]["text"])
            results: list[Json] = [
                {"functionResponse": {"name": each["name"], "response": {
                    "result": self.use(each["name"], each["args"]["key"])}}}
                for each in calls
            ]  # fmt: skip
            if turn == dies_at:
                raise Died
            contents += [content, {"role": "user", "parts": results}]
        raise AssertionError("the model never came to an end")

    def _post(self, body: Json) -> Json:
        connection = http.client.HTTPConnection(*self.proxy.address, timeout=TIMEOUT_S)
        try:
            headers = {"content-type": "application/json", "x-goog-api-key": "k", **self.headers}
            connection.request("POST", GEMINI_PATH, json.dumps(body), headers)
            response = connection.getresponse()
            found: Json = json.loads(response.read())
            assert response.status == 200, found
            return found
        finally:
            connection.close()


AGENTS: dict[str, Callable[..., Agent]] = {
    "chat": ChatAgent,
    "responses": ResponsesAgent,
    "chained": ChainedAgent,
    "messages": MessagesAgent,
    "gemini": GeminiAgent,
}
