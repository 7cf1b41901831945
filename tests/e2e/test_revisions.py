"""A real agent loop on both sides of an edit and of a rerun: killed and started again, or alive.

The upstream answers from what it is shown and never twice alike, so an outcome says which history
the model saw. Each run is the same with the proxy stopped, and with it killed, between any two
verbs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from agentstate.dialects.openai_chat import OpenAIChat
from tests.e2e.test_control import WAIT_S, ask, beside
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Received, Reply, Upstream, json_reply, sse_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

Between = Literal["nothing", "stop", "kill"]
SESSION = "trip"
ENV = {"AGENTSTATE_GATE_HEARTBEAT_S": "0.2", "AGENTSTATE_FORWARD_RETRIES": "0"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
QUESTIONS = ("What is the weather in Oslo?", "What do I wear?", "And my shoes?")
STEPS = 4  # the first question takes two calls


class Weather(Upstream):
    """Calls its tool for the first question, and else answers from the words it has said before."""

    def __init__(self) -> None:
        super().__init__()
        self.paid = 0
        self.fails = False

    def reply_to(self, request: Received) -> Reply:
        if self.fails:
            return json_reply({"error": {"message": "no such luck", "type": "x"}}, status=418)
        self.paid += 1
        asked = request.json()
        messages = asked["messages"]
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        last = messages[-1]
        if last["role"] == "tool":
            message["content"] = f"Report {self.paid} of the weather: {last['content']}."
        elif len(messages) <= 2:
            call = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
            message["tool_calls"] = [
                {"id": f"call_{self.paid}", "type": "function", "function": call}
            ]
        else:
            said = [each["content"] for each in messages if each["role"] == "assistant"]
            message["content"] = f"Advice {self.paid}, as I said <{said[-1]}>"
        finish = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        whole = {
            "id": f"chatcmpl-{self.paid}",
            "object": "chat.completion",
            "created": 1700000000,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": usage,
        }
        if not asked.get("stream"):
            return json_reply(whole)
        return sse_reply(OpenAIChat().events_from_body(json.dumps(whole).encode(), True))


class Rig:
    """The proxy, the model behind it, an agent, and what a person does to its run."""

    def __init__(self, proxy: Proxy, upstream: Weather, between: Between) -> None:
        self.proxy = proxy
        self.upstream = upstream
        self._between = between
        self.weather_of: Callable[[str], str] = lambda city: f"rain in {city}"

    def come_back(self) -> None:
        if self._between == "stop":
            self.proxy.stop()
            self.proxy.start()
        elif self._between == "kill":
            self.proxy.restart()

    def verb(self, path: str, value: Any) -> dict[str, Any]:
        """Do something to the run, and have the proxy come back after it."""
        found: dict[str, Any] = ask(self.proxy, "POST", f"/api/sessions/{SESSION}{path}", value)
        self.come_back()
        return found

    def refused(self, path: str, value: Any) -> str:
        """Try something that must be refused; return status and message."""
        with pytest.raises(AssertionError) as refusal:
            ask(self.proxy, "POST", f"/api/sessions/{SESSION}{path}", value)
        return str(refusal.value)

    def step(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = ask(self.proxy, "GET", f"/api/sessions/{SESSION}/steps/{index}")
        return found

    def active(self) -> list[int]:
        shown = self.proxy.maybe_session(SESSION)
        assert shown is not None
        return [each["index"] for each in shown["steps"] if each["rolled_back_ms"] is None]

    def live(self, *, wait: Callable[[int], None] = lambda _: None) -> list[str]:
        """Run the agent from its beginning; return all that it was told, calls as JSON.

        `wait` is called before each call with its number.
        """
        import openai

        told: list[str] = []
        messages: list[dict[str, Any]] = [{"role": "system", "content": "You know the weather."}]
        with openai.OpenAI(
            base_url=self.proxy.base_url,
            api_key="sk-test",
            max_retries=8,
            timeout=WAIT_S,
            default_headers={"x-agent-session-id": SESSION},
        ) as client:
            for question in QUESTIONS:
                messages.append({"role": "user", "content": question})
                while True:
                    wait(len(told))
                    message = self._ask(client, messages, streams=len(told) % 2 == 1)
                    messages.append(message)
                    told.append(message["content"] or json.dumps(message["tool_calls"]))
                    calls = message.get("tool_calls") or ()
                    for call in calls:
                        city = json.loads(call["function"]["arguments"])["city"]
                        result = {"role": "tool", "tool_call_id": call["id"]}
                        messages.append(result | {"content": self.weather_of(city)})
                    if not calls:
                        break
        return told

    def _ask(self, client: Any, messages: list[dict[str, Any]], *, streams: bool) -> dict[str, Any]:
        create: Any = client.chat.completions.create
        arguments = {"model": "m", "messages": messages, "tools": [TOOL]}
        if streams:
            chunks = create(**arguments, stream=True, stream_options={"include_usage": True})
            text = "".join(
                choice.delta.content or "" for chunk in chunks for choice in chunk.choices
            )
            return {"role": "assistant", "content": text}
        message = create(**arguments).choices[0].message
        found: dict[str, Any] = {"role": "assistant", "content": message.content}
        if message.tool_calls:
            found["tool_calls"] = [call.model_dump() for call in message.tool_calls]
        return found


@pytest.fixture(params=["nothing", "stop", "kill"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    pytest.importorskip("openai")
    with (
        Weather() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=ENV) as proxy,
    ):
        yield Rig(proxy, upstream, request.param)


def test_an_agent_that_starts_again_goes_on_from_the_edited_text(rig: Rig) -> None:
    first = rig.live()
    assert rig.upstream.paid == STEPS
    rig.come_back()

    found = rig.verb("/steps/1/edit", {"text": "It snows.", "by": "ada", "reason": "it does"})
    assert (found["steps_taken_back"], found["cost_microusd"]) == (2, 0)
    assert found["rollback"]["kind"] == "edit"
    second = rig.live()
    assert second[:2] == [first[0], "It snows."]
    assert second[2] == "Advice 5, as I said <It snows.>"
    assert "It snows." in second[3]
    assert rig.upstream.paid == STEPS + 2
    rig.come_back()

    number = found["rollback"]["rollback_id"]
    undone = rig.verb("/restore", {"rollback_id": number})
    assert (undone["steps_restored"], undone["steps_taken_back"]) == (2, 2)
    assert rig.live() == first
    rig.verb("/restore", {"rollback_id": undone["rollback"]["rollback_id"]})
    assert rig.live() == second
    assert rig.upstream.paid == STEPS + 2

    answers = rig.step(1)["answers"]
    assert [(row["kind"], row["stands"], row["by"]) for row in answers] == [
        ("recorded", False, None),
        ("edit", True, "ada"),
    ]
    old = ask(
        rig.proxy, "GET", f"/api/sessions/{SESSION}/steps/1/answers/{answers[0]['answer_id']}"
    )
    assert old["choices"][0]["text"] == first[1]


def test_edited_arguments_are_what_the_agent_carries_out(rig: Rig) -> None:
    first = rig.live()
    found = rig.verb("/steps/0/edit", {"arguments": {"city": "Bergen"}})
    assert found["steps_taken_back"] == STEPS - 1
    second = rig.live()
    assert json.loads(second[0])[0]["function"]["arguments"] == '{"city":"Bergen"}'
    assert json.loads(second[0])[0]["id"] == json.loads(first[0])[0]["id"]
    assert all("rain in Bergen" in text for text in second[1:])
    assert rig.upstream.paid == 2 * STEPS - 1
    rig.come_back()

    assert "city" in rig.refused("/steps/0/edit", {"arguments": {"town": "Bodø"}})
    assert rig.live() == second
    rig.verb("/restore", {})
    assert rig.live() == first
    assert rig.upstream.paid == 2 * STEPS - 1


def test_the_model_is_asked_again_and_its_answer_stands(rig: Rig) -> None:
    first = rig.live()
    found = rig.verb("/steps/1/rerun", {"by": "ada"})
    assert found["text"] == "Report 5 of the weather: rain in Oslo."
    assert (found["attempts"], found["steps_taken_back"]) == (1, 2)
    assert rig.upstream.paid == STEPS + 1
    second = rig.live()
    assert second[1] == found["text"]
    assert found["text"] in second[2]
    assert rig.upstream.paid == STEPS + 3
    shown = rig.proxy.maybe_session(SESSION)
    assert shown is not None
    assert shown["session"]["output_tokens"] == 5 * rig.upstream.paid  # all of it was paid

    rig.upstream.fails = True
    assert "418" in rig.refused("/steps/1/rerun", {})
    assert rig.live() == second  # nothing has changed
    assert [row["status"] for row in rig.step(1)["attempts"]] == [200, 200, 418]
    rig.upstream.fails = False
    rig.come_back()

    rig.verb("/restore", {})
    assert rig.live() == first


def test_another_request_is_asked_and_kept_with_its_answer(rig: Rig) -> None:
    rig.live()
    request = rig.step(1)["request"]
    request["messages"][-1]["content"] = "sun in Tromsø"
    found = rig.verb("/steps/1/rerun", {"request": request, "model": "n"})
    assert found["text"] == "Report 5 of the weather: sun in Tromsø."
    received = rig.upstream.received[-1].json()
    assert (received["model"], received["messages"]) == ("n", request["messages"])
    shown = ask(rig.proxy, "GET", f"/api/sessions/{SESSION}/steps/1/answers/{found['answer_id']}")
    assert shown["request"] == request | {"model": "n"}
    assert rig.step(1)["request"]["messages"][-1]["content"] == "rain in Oslo"
    assert "sun in Tromsø" in rig.live()[3]


def test_all_in_any_order_and_back(rig: Rig) -> None:
    told = {0: rig.live()}
    rig.verb("/steps/2/edit", {"text": "Wear a very large hat, whatever comes."})
    told[1] = rig.live()
    rig.verb("/steps/1/edit", {"text": "It snows and it will go on snowing."})
    told[2] = rig.live()
    rig.verb("/reset", {"index": 3})
    told[3] = rig.live()
    rig.verb("/steps/1/rerun", {})
    told[4] = rig.live()
    paid = rig.upstream.paid
    assert len({tuple(each) for each in told.values()}) == 5
    for number in (3, 2, 1, 0):
        rig.verb("/restore", {})
        assert rig.live() == told[number]
    for row, number in ((8, 1), (7, 2), (6, 3), (5, 4)):  # and each restore undone
        rig.verb("/restore", {"rollback_id": row})
        assert rig.live() == told[number]
    assert rig.upstream.paid == paid


def test_an_agent_that_is_alive_goes_on_and_the_model_sees_the_edited_text(rig: Rig) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def wait(number: int) -> None:
        if number == 3:
            reached.set()
            assert go_on.wait(WAIT_S)

    with beside(lambda: rig.live(wait=wait)) as told:
        assert reached.wait(WAIT_S)
        rig.verb("/pause", {})
        rig.verb("/steps/1/edit", {"text": "It snows."})
        go_on.set()
        rig.verb("/resume", {})
    [said] = told
    assert said[1] == "Report 2 of the weather: rain in Oslo."
    sent = rig.upstream.received[-1].json()["messages"]
    texts = [each["content"] for each in sent if each["role"] == "assistant"]
    assert texts == [None, "It snows.", said[2]]
    # What it sent is what is on record: its retry would be a replay.
    recorded = rig.step(3)["request"]["messages"]
    assert [each["content"] for each in recorded if each["role"] == "assistant"][1] == said[1]
    assert rig.active() == [0, 1, 3]

    second = rig.live()
    assert second[1] == "It snows."
    assert rig.upstream.paid == STEPS + 2


def test_what_cannot_be_replaced_is_refused(rig: Rig) -> None:
    rig.live()
    answer_id = rig.step(1)["answer_id"]
    rig.verb("/steps/1/edit", {"text": "It snows.", "answer_id": answer_id})
    assert "answers with" in rig.refused("/steps/1/edit", {"text": "No", "answer_id": answer_id})
    assert "says that already" in rig.refused("/steps/1/edit", {"text": "It snows."})
    assert "rolled back" in rig.refused("/steps/2/edit", {"text": "No"})
    assert "rolled back" in rig.refused("/steps/2/rerun", {})
    assert "no text" not in rig.refused("/steps/9/edit", {"text": "No"})
    assert "body.choices[0]" in rig.refused("/steps/1/edit", {"body": {"choices": [{}]}})


def test_what_clients_could_not_read_is_no_answer_and_pays_nothing(rig: Rig) -> None:
    rig.live()
    before = rig.step(1)["answer_id"]
    paid = rig.upstream.paid
    message = {"role": "assistant", "content": 5}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    for body, place in (
        ({"choices": [choice]}, "body.choices[0].message.content"),
        ({"a": 1}, "body"),
    ):
        refusal = rig.refused("/steps/1/edit", {"body": body})
        assert "400" in refusal
        assert place in refusal
    for model in ("", " "):
        assert "the name of a model" in rig.refused("/steps/1/rerun", {"model": model})
    assert rig.step(1)["answer_id"] == before
    assert rig.upstream.paid == paid
