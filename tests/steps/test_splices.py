"""What an agent has not seen comes back in its later requests, and in no other."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Approval, Decision
from agentstate.ground.records import Query
from agentstate.ground.settings import GateSettings, ProviderSettings, RuleSettings
from agentstate.wire.message import Response
from tests.dialects import samples_anthropic as messages
from tests.dialects import samples_responses as responses
from tests.steps.gate_parts import TOOL
from tests.steps.scene import FakeExchange, FakeRequest, Scene, play, read

GATE = GateSettings(tools=(TOOL,), on_reject="continue")
YES = Decision(True, "ada")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def call(name: str = TOOL, call_id: str = "call_0", table: str = "users") -> Message:
    function = {"name": name, "arguments": json.dumps({"table": table})}
    return {"id": call_id, "type": "function", "function": function}


def said(text: str | None, *calls: Message) -> Message:
    message: Message = {"role": "assistant", "content": text}
    return {**message, "tool_calls": list(calls)} if calls else message


def result(call_id: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def chat(*choices: Message) -> bytes:
    """Make a chat answer."""
    entries = [
        {
            "index": index,
            "message": message,
            "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
        }
        for index, message in enumerate(choices)
    ]
    return json.dumps({"id": "c", "object": "chat.completion", "choices": entries}).encode()


def completion(text: str) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    return json.dumps({"id": "c", "object": "text_completion", "choices": [choice]}).encode()


class Table:
    """A session at a table with a model that says what it is told to, and a person."""

    def __init__(self, scene: Scene, *answers: bytes) -> None:
        self.scene = scene
        self.answers = list(answers)
        scene.transport.on_call = self._answer

    async def _answer(self, number: int) -> FakeExchange:
        exchange = FakeExchange(200, b"application/json")
        exchange.give(self.answers[number], None)
        return exchange

    @property
    def sent(self) -> list[Any]:
        """The bodies that went upstream."""
        bodies = (each.body for each in self.scene.transport.calls)
        return [json.loads(body) for body in bodies if isinstance(body, bytes)]

    @property
    def last(self) -> list[Message]:
        """The messages that went upstream last."""
        found: list[Message] = self.sent[-1]["messages"]
        return found

    def begin(
        self, *said_so_far: Message, session: str = "s", path: str = CHAT, **fields: Any
    ) -> asyncio.Task[Response]:
        """Make a call, of chat if nothing else is said."""
        body = {"model": "m", "max_tokens": 9, **fields}
        if path == CHAT:
            tools = [{"type": "function", "function": {"name": TOOL}}]
            body = {**body, "messages": list(said_so_far), "tools": tools}
        return self.send(json.dumps(body).encode(), session=session, path=path)

    def send(self, body: bytes, *, session: str = "s", path: str = CHAT) -> asyncio.Task[Response]:
        """Make a call with a body of one's own."""
        pairs = [(b"x-agent-session-id", session.encode()), (b"authorization", b"Bearer sk-x")]
        return asyncio.create_task(self.scene.ask(FakeRequest(pairs, body), path))

    async def pending(self, count: int) -> list[Approval]:
        """Wait until so many calls wait for a person; return them by their places."""
        while True:
            page = await self.scene.store.list_approvals(Query(status="PENDING"), at_ms=0)
            if len(page.rows) == count:
                break
            await asyncio.sleep(0)
        return sorted(page.rows, key=lambda row: (row.question.choice, row.question.position))

    async def decide(self, *decisions: Decision) -> None:
        """Decide on what waits, in the order of the places."""
        rows = await self.pending(len(decisions))
        for row, decision in zip(rows, decisions, strict=True):
            await self.scene.gate.decide(row.approval_id, decision)

    async def refuse(self, task: asyncio.Task[Response], reason: str) -> None:
        """Refuse the one call that waits, and wait for what the agent gets instead."""
        await self.decide(no(reason))
        assert (await task).status == 200


def no(reason: str) -> Decision:
    return Decision(False, "ada", reason, None, "continue")


def roles(items: list[Message]) -> list[str]:
    return [each["role"] for each in items]


# --- what comes back ------------------------------------------------------------------------------


def test_several_refusals_of_one_conversation_all_come_back_in_their_places() -> None:
    async def scenario(scene: Scene) -> None:
        answers: list[bytes] = []
        for number in range(3):
            answers += [chat(said(None, call())), chat(said(f"No {number}."))]
        table = Table(scene, *answers, chat(said("done")))
        talk = [user("go")]
        for number in range(3):
            await table.refuse(table.begin(*talk), f"reason {number}")
            talk += [said(f"No {number}."), user(f"and {number}?")]
        await table.begin(*talk)

        assert roles(table.last) == ["user", *["assistant", "tool", "assistant", "user"] * 3]
        told = [each["content"] for each in table.last if each["role"] == "tool"]
        for number, text in enumerate(told):
            assert f"reason {number}" in text
        assert [each for each in table.last if each in talk] == talk

        # They do so after a restart as well, which remembers none of it.
        before = table.last
        scene.start()
        table.answers.append(chat(said("done")))
        await table.begin(*talk, said("done"), user("more"))
        assert table.last == [*before, said("done"), user("more")]

    play(scenario, gate=GATE)


def test_further_rounds_of_one_answer_come_back_together() -> None:
    async def scenario(scene: Scene) -> None:
        table = Table(
            scene,
            chat(said("First.", call())),
            chat(said("Then.", call(table="logs"))),
            chat(said("Well.")),
            chat(said("done")),
        )
        task = table.begin(user("go"))
        await table.decide(no("one"))
        await table.refuse(task, "two")
        heard = json.loads(await read(await task))["choices"][0]["message"]
        assert heard["content"] == "First.\n\nThen.\n\nWell."
        await table.begin(user("go"), heard, user("and?"))

        assert roles(table.last) == ["user", *["assistant", "tool"] * 2, "assistant", "user"]
        assert [each.get("content") for each in table.last if each["role"] == "assistant"] == [
            "First.",
            "Then.",
            "Well.",
        ]

    play(scenario, gate=GATE)


def test_siblings_keep_their_places_though_all_ids_are_the_same() -> None:
    """Some models call all of their calls `call_0`: then nothing else tells them apart."""

    async def scenario(scene: Scene) -> None:
        safe, guarded = call("get_weather", "call_1"), call(call_id="call_0")
        table = Table(
            scene,
            chat(said(None, guarded, safe)),
            chat(said(None, guarded, safe)),
            chat(said("done")),
        )
        talk = [user("go")]
        for number in range(2):
            await table.refuse(table.begin(*talk), f"reason {number}")
            talk += [said(None, safe), result("call_1", f"rain {number}")]
        await table.begin(*talk)

        assert [each.get("tool_calls") for each in table.last] == [
            None,
            *[[guarded, safe], None, None] * 2,
        ]
        for number, results in enumerate((table.last[2:4], table.last[5:7])):
            contents = {each["tool_call_id"]: each["content"] for each in results}
            assert contents["call_1"] == f"rain {number}"
            assert f"reason {number}" in contents["call_0"]

    play(scenario, gate=GATE)


def test_a_call_that_was_edited_after_a_refusal_comes_back_as_it_was_carried_out() -> None:
    async def scenario(scene: Scene) -> None:
        table = Table(
            scene, chat(said(None, call())), chat(said(None, call(table="b"))), chat(said("done"))
        )
        task = table.begin(user("go"))
        await table.decide(no("not a"))
        await table.decide(Decision(True, "ada", None, '{"table": "tmp"}'))
        heard = json.loads(await read(await task))["choices"][0]["message"]
        assert heard["tool_calls"] == [call(table="tmp")]
        await table.begin(user("go"), heard, result("call_0", "deleted"))

        assert roles(table.last) == ["user", "assistant", "tool", "assistant", "tool"]
        assert table.last[1]["tool_calls"] == [call()]
        assert table.last[3]["tool_calls"] == [call(table="tmp")]
        assert table.last[4] == result("call_0", "deleted")

    play(scenario, gate=GATE)


def test_parallel_conversations_of_one_session_do_not_mix() -> None:
    async def scenario(scene: Scene) -> None:
        lanes = [f"lane {number}" for number in range(5)]
        table = Table(scene)
        for lane in lanes:  # the same call, with the same id, in each; and the same words after it
            table.answers += [chat(said(None, call())), chat(said("No."))]
            await table.refuse(table.begin(user(lane)), f"because of {lane}")
        table.answers += [chat(said("done"))] * len(lanes)
        for lane in lanes:
            await table.begin(user(lane), said("No."), user("and?"))
            assert roles(table.last) == ["user", "assistant", "tool", "assistant", "user"]
            assert f"because of {lane}." in table.last[2]["content"]

    play(scenario, gate=GATE)


def test_every_branch_of_a_conversation_descends_from_what_is_before_it() -> None:
    async def scenario(scene: Scene) -> None:
        table = Table(scene, chat(said(None, call())), chat(said("No.")))
        await table.refuse(table.begin(user("go")), "because")
        for text in ("this?", "that?", "or that?"):
            table.answers.append(chat(said("done")))
            await table.begin(user("go"), said("No."), user(text))
            assert roles(table.last) == ["user", "assistant", "tool", "assistant", "user"]
            assert table.last[-1] == user(text)

    play(scenario, gate=GATE)


def test_a_conversation_whose_beginning_was_compacted_is_known_by_its_calls() -> None:
    async def scenario(scene: Scene) -> None:
        safe, guarded = call("get_weather", "call_1"), call(call_id="call_2")
        table = Table(scene, chat(said(None, safe, guarded)), *[chat(said("done"))] * 3)
        talk = [user("a"), said("b"), user("go")]
        await table.refuse(table.begin(*talk), "because")
        summary = {"role": "system", "content": "So far: a, and b."}
        after = [said(None, safe), result("call_1", "rain")]
        await table.begin(summary, user("go"), *after)
        assert table.last[2]["tool_calls"] == [safe, guarded]
        assert {each["tool_call_id"] for each in table.last[3:]} == {"call_1", "call_2"}

        # With other words before it, or at two places, it could be another one's.
        for talk in ([summary, *after], [user("go"), *after, user("go"), *after, user("so?")]):
            await table.begin(*talk)
            assert table.last == talk

    play(scenario, gate=GATE)


def test_rules_that_refuse_one_of_several_choices_tell_nothing_of_another() -> None:
    async def scenario(scene: Scene) -> None:
        fine, bad = said(None, call(table="tmp")), said(None, call(table="users"))
        table = Table(scene, chat(fine, bad), chat(said("done")))
        response = await table.begin(user("go"), n=2)
        choices = json.loads(await read(response))["choices"]
        assert [len(each["message"].get("tool_calls", ())) for each in choices] == [1, 0]
        talk = [user("go"), fine, result("call_0", "deleted")]
        await table.begin(*talk)
        assert table.last == talk

    rule = RuleSettings(TOOL, 'args.table == "users"', "deny", "continue")
    play(scenario, gate=GateSettings(tools=(), rules=(rule,)))


# --- other forms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_listed", [False, True], ids=["a text", "a list of one text"])
def test_refusals_come_back_into_a_prompt_that_grew_since(is_listed: bool) -> None:
    """Each is found by all that stands before it, so the last one has to be put in first."""

    async def scenario(scene: Scene) -> None:
        spelled = f"Action: {TOOL}\nAction Input: {{}}"
        answers = [spelled, " No 0.", spelled, " No 1.", "done"]
        table = Table(scene, *map(completion, answers))
        prompt = f"You may call {TOOL}."
        for number in range(2):
            sent = [prompt] if is_listed else prompt
            await table.refuse(table.begin(path=COMPLETIONS, prompt=sent), f"reason {number}")
            prompt += f" No {number}. And {number}?"
        await table.begin(path=COMPLETIONS, prompt=[prompt] if is_listed else prompt)

        seen = table.sent[-1]["prompt"]
        text = seen[0] if is_listed else seen
        marks = [spelled, "reason 0", "No 0.", "And 0?", spelled, "reason 1", "No 1.", "And 1?"]
        at = 0
        for mark in marks:
            at = text.index(mark, at) + len(mark)

    play(scenario, gate=GATE)


def test_refusals_come_back_after_an_input_that_was_a_text() -> None:
    """A text is one item of a conversation, however long it is."""

    async def scenario(scene: Scene) -> None:
        asked = "Please go on and do whatever seems right to you, and tell me of it."

        def item(number: int) -> dict[str, Any]:
            return {**responses.call(number, name=TOOL, arguments="{}"), "call_id": "call_0"}

        def text(number: int) -> dict[str, Any]:
            return responses.message(responses.part(f"No {number}."), id=f"msg_{number}")

        table = Table(
            scene,
            *(responses.body(each) for number in range(2) for each in (item(number), text(number))),
            responses.body(text(2)),
        )
        talk: list[Any] = [user(asked)]
        for number in range(2):
            sent = asked if number == 0 else talk
            task = table.begin(path="/v1/responses", input=sent)
            await table.refuse(task, f"reason {number}")
            talk += [text(number), user("and?")]
        await table.begin(path="/v1/responses", input=talk)

        kinds = [each.get("type") or each["role"] for each in table.sent[-1]["input"]]
        again = ["function_call", "function_call_output", "message", "user"]
        assert kinds == ["user", *again, *again]

    play(scenario, gate=GATE)


def test_refusals_come_back_in_messages() -> None:
    async def scenario(scene: Scene) -> None:
        row = ProviderSettings("anthropic", ("anthropic_messages",), "http://up.example", None)
        scene.settings = replace(scene.settings, providers=(row,))
        scene.start()
        block = {**messages.CALL, "id": "call_0", "name": TOOL, "input": {}}
        table = Table(scene)
        talk = [user("go")]
        for number in range(2):
            table.answers += [
                messages.body(block, reason="tool_use"),
                messages.body({"type": "text", "text": f"No {number}."}),
            ]
            task = table.begin(path="/v1/messages", messages=talk)
            await table.refuse(task, f"reason {number}")
            talk += [said(f"No {number}."), user("and?")]
        table.answers.append(messages.body({"type": "text", "text": "done"}))
        await table.begin(path="/v1/messages", messages=talk)

        assert roles(table.last) == ["user", *["assistant", "user"] * 4]
        kinds = [
            each["content"][0]["type"] if isinstance(each["content"], list) else "text"
            for each in table.last
        ]
        assert kinds == ["text", *["tool_use", "tool_result", "text", "text"] * 2]

    play(scenario, gate=GATE)


# --- what is left alone ---------------------------------------------------------------------------

ODD = b'{"model":"m",  "temperature": 1.50, "messages": %b }'


def test_requests_that_do_not_descend_go_upstream_byte_for_byte() -> None:
    async def scenario(scene: Scene) -> None:
        table = Table(scene, chat(said(None, call())), chat(said("No.")))
        await table.refuse(table.begin(user("go")), "because")
        others: list[list[Message]] = [
            [user("other")],
            [user("other"), said("No."), user("and?")],  # other words before it
            [user("go"), said("Yes."), user("and?")],  # another answer
            [user("go"), said(None, call()), result("call_0", "x")],  # carried out all the same
            [{"role": "system", "content": "So far: the user said go."}, user("and?")],  # compacted
            [said("No."), user("and?")],
            [user("go"), user("go"), said("No."), user("and?")],
        ]
        table.answers += [chat(said("done"))] * len(others)
        for talk in others:
            body = ODD % json.dumps(talk).encode()
            await table.send(body)
            assert scene.transport.calls[-1].body == body

    play(scenario, gate=GATE)


def test_another_session_is_another_conversation() -> None:
    async def scenario(scene: Scene) -> None:
        table = Table(scene, chat(said(None, call())), chat(said("No.")), chat(said("done")))
        await table.refuse(table.begin(user("go")), "because")
        talk = [user("go"), said("No."), user("and?")]
        await table.begin(*talk, session="other")
        assert table.last == talk

    play(scenario, gate=GATE)


def test_an_answer_that_is_still_held_has_nothing_to_put_back() -> None:
    async def scenario(scene: Scene) -> None:
        table = Table(
            scene, chat(said(None, call(call_id="a"), call(call_id="b"))), chat(said("done"))
        )
        task = table.begin(user("go"))
        first, _ = await table.pending(2)
        await scene.gate.decide(first.approval_id, no("half"))
        talk = [user("go"), said("What?"), user("and?")]
        await table.begin(*talk)
        assert table.last == talk
        task.cancel()

    play(scenario, gate=GATE)


def test_an_answer_that_was_approved_or_stopped_leaves_no_trace() -> None:
    async def scenario(scene: Scene) -> None:
        table = Table(scene, *[chat(said(None, call())), chat(said("done"))] * 2)
        task = table.begin(user("a"))
        await table.decide(YES)
        await task
        talk = [user("a"), said(None, call()), result("call_0", "deleted")]
        await table.begin(*talk)
        assert table.last == talk

        task = table.begin(user("b"))
        await table.decide(Decision(False, "ada", None, None, "stop"))
        assert (await task).status == 403
        talk = [user("b"), said(None), user("and?")]
        await table.begin(*talk)
        assert table.last == talk

    play(scenario, gate=GATE)


def test_a_refreshed_step_is_not_spliced_into_itself() -> None:
    async def scenario(scene: Scene) -> None:
        table = Table(
            scene, chat(said(None, call())), chat(said("No.")), chat(said("Now I do not."))
        )
        await table.refuse(table.begin(user("go")), "because")
        pairs = [(b"x-agent-session-id", b"s"), (b"authorization", b"Bearer sk-x")]
        body = scene.transport.calls[0].body
        assert isinstance(body, bytes)
        again = FakeRequest([*pairs, (b"x-agent-replay", b"refresh")], body)
        assert (await scene.ask(again)).status == 200
        assert scene.transport.calls[-1].body == body

    play(scenario, gate=GATE)
