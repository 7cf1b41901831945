// The same agent as agent.py, with the official Node client; see there.
//
//   node agent.mjs BASE_URL SESSION STEPS node RETRIES      (OPENAI_MODULE: the client's folder)

import { createRequire } from "node:module";

const { OpenAI } = createRequire(import.meta.url)(process.env.OPENAI_MODULE);

const KINDS = ["plain", "stream", "tool", "raw"];
const TOOL = {
  type: "function",
  function: {
    name: "look_up",
    description: "Look a key up.",
    parameters: { type: "object", properties: { key: { type: "string" } } },
  },
};

const [baseURL, session, steps, , retries] = process.argv.slice(2);
const client = new OpenAI({
  baseURL,
  apiKey: "sk-agent",
  maxRetries: Number(retries),
  defaultHeaders: { "x-agent-session-id": session },
});

const messages = [{ role: "system", content: "You are terse." }];
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const take = ({ content, tool_calls: calls }) => {
  const message = { role: "assistant", content };
  if (calls?.length) message.tool_calls = calls;
  messages.push(message);
  for (const call of calls ?? []) {
    const { key } = JSON.parse(call.function.arguments);
    messages.push({ role: "tool", tool_call_id: call.id, content: `found ${key}` });
  }
};

const readStream = async (body, options) => {
  const stream = await client.chat.completions.create(
    { ...body, stream: true, stream_options: { include_usage: true } },
    options,
  );
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
  return { content: text };
};

const readRaw = async (body, options, step) => {
  const { data, response } = await client.chat.completions.create(body, options).withResponse();
  say({ hit: response.headers.get("x-agentstate-cache-hit"), step });
  return data.choices[0].message;
};

const ask = async (step) => {
  const kind = KINDS[step % KINDS.length];
  if (messages.at(-1).role !== "tool") {
    messages.push({ role: "user", content: `What comes at step ${step}?` });
  }
  const body = { model: "gpt-4o-mini", messages };
  const options = { headers: { "x-agent-step-number": String(step) } };
  if (kind === "stream") return readStream(body, options);
  if (kind === "raw") return readRaw(body, options, step);
  if (kind === "tool") body.tools = [TOOL];
  return (await client.chat.completions.create(body, options)).choices[0].message;
};

for (let step = 0; step < Number(steps); step += 1) {
  say({ asking: step });
  take(await ask(step));
  say({ answered: step });
}
say({ transcript: messages });
