// Vercel's AI SDK through `@ai-sdk/openai-compatible`, whose parsers of streams are strict.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";
import { check, main, target, waitIdle } from "./proofs.mjs";

const provider = createOpenAICompatible({
  name: "octavo",
  baseURL: target.url,
  apiKey: target.key,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const chat = provider(target.model);
const prompt = "What is the capital of France?";
const greedy = { model: chat, temperature: 0, maxOutputTokens: 24, maxRetries: 0 };
const long = { ...greedy, maxOutputTokens: 200 };
const City = z.object({ name: z.enum(["Paris", "London"]), is_capital: z.boolean() });
const question = "What is the weather in Paris? Use the tool.";
const weather = tool({
  description: "Get the current weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `It is 21 degrees and sunny in ${city}.`,
});

check("generateText and streamText agree, with usage and finish reason", async () => {
  const whole = await generateText({ prompt, ...greedy });
  const stream = streamText({ prompt, ...greedy });
  let text = "";
  for await (const delta of stream.textStream) text += delta;
  assert(text);
  assert.equal(text, whole.text);
  assert.equal(await stream.finishReason, whole.finishReason);
  const usage = await stream.usage;
  assert(usage.totalTokens > 0);
  assert.equal(usage.totalTokens, whole.usage.totalTokens);
});

check("structured output: a zod schema by json_schema, whole and as a stream", async () => {
  const output = Output.object({ schema: City });
  City.parse((await generateText({ prompt, output, ...long })).output);
  const stream = streamText({ prompt, output, ...long });
  let last;
  for await (const partial of stream.partialOutputStream) last = partial;
  City.parse(last);
});

check("a completion model, whole and streamed", async () => {
  const model = provider.completionModel(target.model);
  const whole = await generateText({ ...greedy, model, prompt: "The sky is" });
  const stream = streamText({ ...greedy, model, prompt: "The sky is" });
  let text = "";
  for await (const delta of stream.textStream) text += delta;
  assert.equal(text, whole.text);
});

check("errors: the server's sentence and status are in the exception", async () => {
  await assert.rejects(
    generateText({ ...greedy, prompt, temperature: 9 }),
    (error) =>
      APICallError.isInstance(error) &&
      error.statusCode === 400 &&
      error.message.includes("temperature"),
  );
  await assert.rejects(
    generateText({ ...greedy, prompt, model: provider("nope") }),
    (error) => APICallError.isInstance(error) && error.statusCode === 404,
  );
});

check("an aborted stream ends its request", async () => {
  const controller = new AbortController();
  const stream = streamText({
    ...greedy,
    prompt: "Tell me a long story.",
    maxOutputTokens: 4000,
    abortSignal: controller.signal,
    providerOptions: { octavo: { ignore_eos: true } },
  });
  for await (const _ of stream.textStream) controller.abort();
  await waitIdle();
});

check(
  "tools: a required call, whole and streamed",
  async () => {
    const fields = { ...long, prompt: question, tools: { weather }, toolChoice: "required" };
    const whole = await generateText(fields);
    assert.equal(whole.toolCalls[0].toolName, "weather");
    const stream = streamText(fields);
    const calls = await stream.toolCalls;
    assert.deepEqual(calls[0].input, whole.toolCalls[0].input);
  },
  "small",
  "coder",
);

check(
  "tools: runs the one that the model calls by itself, and sends its result, as a stream",
  async () => {
    const stream = streamText({
      ...long,
      prompt: question,
      tools: { weather },
      stopWhen: isStepCount(2), // a small model goes on calling
    });
    const steps = await stream.steps;
    assert.equal(steps[0].toolCalls[0].toolName, "weather");
    assert(steps[0].toolResults[0].output.includes("21"));
    assert.equal(steps.length, 2);
  },
  "coder",
);

await main();
