// The official client for Node: chat, completions, typed replies, errors, leaving, tools.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { check, main, target, waitIdle } from "./proofs.mjs";

const client = new OpenAI({ baseURL: target.url, apiKey: target.key, maxRetries: 0 });
const model = target.model;
const messages = [{ role: "user", content: "What is the capital of France?" }];
const greedy = { model, temperature: 0, max_tokens: 24 };
const long = { model, temperature: 0, max_tokens: 200 };
const City = z.object({ name: z.enum(["Paris", "London"]), is_capital: z.boolean() });
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the current weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    },
  },
};
const asked = [{ role: "user", content: "What is the weather in Paris? Use the tool." }];

check("models: list and retrieve", async () => {
  const ids = [];
  for await (const one of client.models.list()) ids.push(one.id);
  assert(ids.includes(model));
  assert.equal((await client.models.retrieve(model)).id, model);
});

check("chat: a stream adds up to the whole reply, its last chunk has the usage", async () => {
  const whole = await client.chat.completions.create({ messages, ...greedy });
  const stream = await client.chat.completions.create({
    messages,
    stream: true,
    stream_options: { include_usage: true },
    ...greedy,
  });
  let text = "";
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual(usage, whole.usage);
});

check("streaming helper: content events and the final completion", async () => {
  const whole = await client.chat.completions.create({ messages, ...greedy });
  const runner = client.chat.completions.stream({ messages, ...greedy });
  let text = "";
  runner.on("content", (delta) => (text += delta));
  const final = await runner.finalChatCompletion();
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(final.choices[0].message.content, text);
});

check("parse: a zod schema in, an object out; the same from the streaming helper", async () => {
  const response_format = zodResponseFormat(City, "city");
  const reply = await client.chat.completions.parse({ messages, response_format, ...long });
  City.parse(reply.choices[0].message.parsed);
  const runner = client.chat.completions.stream({ messages, response_format, ...long });
  City.parse((await runner.finalChatCompletion()).choices[0].message.parsed);
});

check("completions: whole and streamed, several prompts, logprobs", async () => {
  const prompt = ["The sky is", "The sea is"];
  const whole = await client.completions.create({ prompt, logprobs: 1, ...greedy });
  const stream = await client.completions.create({ prompt, stream: true, ...greedy });
  const texts = ["", ""];
  for await (const chunk of stream) for (const c of chunk.choices) texts[c.index] += c.text;
  assert.deepEqual(texts, whole.choices.map((choice) => choice.text));
  assert(whole.choices[0].logprobs.token_logprobs.every((value) => value <= 0));
});

check("errors: 400, 401 and 404 become the client's exceptions", async () => {
  await assert.rejects(
    client.chat.completions.create({ messages, model, temperature: 9 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature",
  );
  await assert.rejects(
    client.chat.completions.create({ messages, model: "nope" }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
  );
  await assert.rejects(
    client.withOptions({ apiKey: "sk-wrong" }).models.list(),
    OpenAI.AuthenticationError,
  );
});

check("an aborted stream and a timeout end their requests", async () => {
  const fields = { model, prompt: "Once", max_tokens: 4000, ignore_eos: true };
  const stream = await client.completions.create({ ...fields, stream: true });
  for await (const _ of stream) break;
  stream.controller.abort();
  await waitIdle();
  await assert.rejects(
    client.completions.create(fields, { timeout: 500 }),
    OpenAI.APIConnectionTimeoutError,
  );
  await waitIdle();
});

check(
  "tools: a forced call, whole and through the streaming helper",
  async () => {
    const tool_choice = { type: "function", function: { name: "get_weather" } };
    const fields = { messages: asked, tools: [weather], tool_choice, ...long };
    const [call] = (await client.chat.completions.create(fields)).choices[0].message.tool_calls;
    assert.equal(call.function.name, "get_weather");
    assert("city" in JSON.parse(call.function.arguments));
    const final = await client.chat.completions.stream(fields).finalChatCompletion();
    const [streamed] = final.choices[0].message.tool_calls;
    assert.deepEqual(streamed.function, call.function);
  },
  "small",
  "coder",
);

check(
  "runTools: runs the function that the model calls by itself, and sends its result",
  async () => {
    const called = [];
    const runner = client.chat.completions.runTools({
      messages: asked,
      stop: ["\n"], // or it repeats its calls until max_tokens
      tools: [
        {
          type: "function",
          function: {
            ...weather.function,
            parse: JSON.parse,
            function: ({ city }) => {
              called.push(city);
              return "It is 21 degrees and sunny.";
            },
          },
        },
      ],
      stream: true,
      ...long,
    }, { maxChatCompletions: 2 }); // a small model goes on calling
    await runner.done();
    assert(called[0].includes("Paris"));
    const roles = runner.messages.map((message) => message.role);
    assert.deepEqual(roles.slice(0, 4), ["user", "assistant", "tool", "assistant"]);
  },
  "coder",
);

await main();
