"""Makes each kind of call that OpenAI's client has, with ours; the upstream says what it was sent.

    python -m tests.e2e.agents.sdk_calls BASE_URL

A prompt that begins with "flaky" fails first. Each call says in its prompt what it is.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentstate import AgentStateOpenAI, AsyncAgentStateOpenAI

MODEL = "gpt-4o-mini"
OPTIONS: Any = {"base_url": sys.argv[1], "api_key": "key", "tags": {"team": "ops"}}

client = AgentStateOpenAI("calls", step_number=10, require_approval=True, **OPTIONS)
chat, responses = client.chat.completions, client.responses


def say(text: str) -> list[Any]:
    """Return a conversation of one message."""
    return [{"role": "user", "content": text}]


chat.create(model=MODEL, messages=say("flaky 10"))
for _ in chat.create(model=MODEL, messages=say("11"), stream=True):
    pass
with chat.stream(model=MODEL, messages=say("12")) as stream:
    stream.get_final_completion()
responses.create(model=MODEL, input="13")
with responses.stream(model=MODEL, input="14") as events:
    events.until_done()
chat.with_raw_response.create(model=MODEL, messages=say("15"))
with chat.with_streaming_response.create(model=MODEL, messages=say("16")) as opened:
    opened.read()
client.with_options(timeout=30).chat.completions.create(model=MODEL, messages=say("17"))
client.copy(set_default_headers={"x-own": "1"}).embeddings.create(model=MODEL, input="18")
client.models.list()
chat.create(model=MODEL, messages=say("19"))
chat.create(model=MODEL, messages=say("own"), extra_headers={"X-Agent-Step-Number": "99"})
chat.create(model=MODEL, messages=say("other"), extra_headers={"X-Agent-Session-Id": "other"})
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda _: chat.create(model=MODEL, messages=say("thread")), range(40)))


async def main() -> None:
    """Make many calls at once in one loop; half of them fail first."""
    later = AsyncAgentStateOpenAI("tasks", fallback_model=["a", "b"], run_id="life-2", **OPTIONS)
    await asyncio.gather(
        *(
            later.chat.completions.create(model=MODEL, messages=say(f"{kind} {number}"))
            for number in range(10)
            for kind in ("flaky", "task")
        )
    )


asyncio.run(main())
