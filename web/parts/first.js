// How to send the first call, for pages that have nothing to show yet.

import { codeBlock, make } from "../dom.js";

/** A heading, a sentence and two snippets for this server. */
export function firstCall(origin) {
  const curl = `curl ${origin}/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -H 'authorization: Bearer mock-key' \\
  -H 'x-agent-session-id: my-first-run' \\
  -d '{"model": "mock/hello", "messages": [{"role": "user", "content": "Hello"}]}'`;
  const python = `from openai import OpenAI

client = OpenAI(
    base_url="${origin}/v1",
    api_key="mock-key",
    default_headers={"x-agent-session-id": "my-first-run"},
)
answer = client.chat.completions.create(
    model="mock/hello",
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.choices[0].message.content)`;
  return [
    make("h2", { textContent: "No session yet" }),
    make("p", {
      textContent:
        "Point an agent at this proxy and name its session; each call appears here as a step. " +
        "These two use the built-in mock model and need no key. Run one twice: the second " +
        "answer is a replay.",
    }),
    codeBlock("curl", curl),
    codeBlock("Python", python),
  ];
}
