// The Vercel AI SDK: generateText runs the tool until the model is done. As life.py has it.
import { randomUUID } from "node:crypto";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const [baseURL, session, dies] = process.argv.slice(2);
const openai = createOpenAI({
  baseURL,
  apiKey: "mock-key",
  headers: { "x-agent-session-id": session, "x-agent-run-id": randomUUID() },
});
const look_up = tool({
  description: "Look a key up.",
  inputSchema: z.object({ key: z.string() }),
  execute: async ({ key }) => {
    if (dies && key === "k2") process.kill(process.pid, "SIGKILL");
    return `found ${key} in process ${process.pid}`;
  },
});

for (let number = 0; number < 4; number++) {
  const { text } = await generateText({
    model: openai("gpt-4o-mini"),
    system: "You are terse.",
    prompt: `Please look_up {"key": "k${number}"} for me.`,
    tools: { look_up },
    stopWhen: stepCountIs(3),
  });
  console.log(text);
}
