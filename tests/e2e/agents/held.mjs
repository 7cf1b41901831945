// One call with the official Node client, whose tool call is held; prints its arguments.
//
//   node held.mjs BASE_URL SESSION stream|plain TIMEOUT_MS      (OPENAI_MODULE: the client's folder)

import { createRequire } from "node:module";

const { OpenAI } = createRequire(import.meta.url)(process.env.OPENAI_MODULE);

const [baseURL, session, mode, timeout] = process.argv.slice(2);
const client = new OpenAI({
  baseURL,
  apiKey: "sk-agent",
  timeout: Number(timeout),
  maxRetries: mode === "stream" ? 0 : 20,
  defaultHeaders: { "x-agent-session-id": session },
});
const asked = {
  model: "m",
  messages: [{ role: "user", content: "go" }],
  tools: [{ type: "function", function: { name: "delete_rows", parameters: { type: "object" } } }],
};

if (mode === "stream") {
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
    for (const call of chunk.choices[0]?.delta.tool_calls ?? []) {
      text += call.function.arguments ?? "";
    }
  }
  console.log(text);
} else {
  const answer = await client.chat.completions.create(asked);
  console.log(answer.choices[0].message.tool_calls[0].function.arguments);
}
