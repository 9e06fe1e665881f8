// The official Node client: whole and streamed answers, raw headers, errors, retries, log probabilities, tools.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { check, counts, failNext, KEY, LIMITED_KEY, main, MODEL, QUESTION, rejects, served, URL, waitFor } from "./checks.mjs";

const client = new OpenAI({ baseURL: URL, apiKey: KEY, maxRetries: 0, timeout: 300000 });
const GREEDY = { model: MODEL, messages: QUESTION, temperature: 0, max_tokens: 24 };
const ask = (body, options) => client.chat.completions.create({ ...GREEDY, ...body }, options);

async function all(stream) {
  const chunks = [];
  for await (const chunk of await stream) chunks.push(chunk);
  return chunks;
}

const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

check("The models list and one card", async () => {
  const models = await all(client.models.list());
  assert.ok(models.some((model) => model.id === MODEL));
  assert.equal((await client.models.retrieve(MODEL)).object, "model");
});

check("A streamed answer is the whole one, with the same usage", async () => {
  const whole = await ask({});
  const chunks = await all(ask({ stream: true, stream_options: { include_usage: true } }));
  assert.ok(whole.choices[0].message.content.length > 0);
  assert.equal(textOf(chunks), whole.choices[0].message.content);
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  const reasons = chunks.map((chunk) => chunk.choices[0]?.finish_reason).filter(Boolean);
  assert.deepEqual(reasons, [whole.choices[0].finish_reason]);
});

check("Ten requests at once, whole and streamed", async () => {
  const seeds = await Promise.all(
    [...Array(10).keys()].map(async (seed) => {
      if (seed % 2) return (await ask({ seed, max_tokens: 8 })).nexus.seed;
      return (await all(ask({ seed, max_tokens: 8, stream: true }))).at(-1).nexus.seed;
    }),
  );
  assert.deepEqual(seeds, [...Array(10).keys()]);
});

check("Raw responses give our headers, and the caller's id comes back", async () => {
  const options = { headers: { "x-client-request-id": "scenario-1" } };
  const { data, response, request_id: id } = await ask({}, options).withResponse();
  assert.match(id, /^req_/);
  assert.equal(response.headers.get("x-client-request-id"), "scenario-1");
  assert.ok(Number(response.headers.get("openai-processing-ms")) >= 0);
  assert.ok(data.choices.length === 1);
  const raw = await (await ask({ stream: true }).asResponse()).text();
  const lines = raw.split("\n").filter(Boolean);
  assert.equal(lines.at(-1), "data: [DONE]");
  assert.ok(lines.every((line) => line.startsWith("data: ") || line.startsWith(":")));
});

check("The stream helper gathers the same answer", async () => {
  const whole = await ask({});
  const runner = client.chat.completions.stream(GREEDY);
  let text = "";
  runner.on("content", (delta) => (text += delta));
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(text, whole.choices[0].message.content);
});

check("A seed gives the same answer again, and choice i of n the answer to seed + i", async () => {
  const body = { temperature: 1, seed: 41, max_tokens: 12 };
  const three = await ask({ ...body, n: 3 });
  for (const choice of three.choices) {
    const alone = await ask({ ...body, seed: 41 + choice.index });
    assert.equal(alone.choices[0].message.content, choice.message.content);
  }
  const chunks = await all(ask({ ...body, n: 3, stream: true }));
  for (const choice of three.choices) {
    const own = chunks.filter((chunk) => chunk.choices[0]?.index === choice.index);
    assert.equal(textOf(own), choice.message.content);
  }
});

check("Log probabilities: one entry a token, the same streamed", async () => {
  const body = { logprobs: true, top_logprobs: 2 };
  const whole = await ask(body);
  const entries = whole.choices[0].logprobs.content;
  assert.equal(entries.length, whole.usage.completion_tokens);
  const chunks = await all(ask({ ...body, stream: true }));
  const streamed = chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []);
  assert.deepEqual(
    streamed.map((entry) => entry.token),
    entries.map((entry) => entry.token),
  );
});

check("Legacy completions, whole and streamed", async () => {
  const body = { model: MODEL, prompt: "The capital of France is", max_tokens: 8, temperature: 0 };
  const whole = await client.completions.create(body);
  const chunks = await all(client.completions.create({ ...body, stream: true }));
  assert.ok(whole.choices[0].text.length > 0);
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? "").join(""), whole.choices[0].text);
});

check("A forced tool call, whole and streamed", async () => {
  await served("tools");
  const parameters = {
    type: "object",
    properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
    required: ["city"],
    additionalProperties: false,
  };
  const body = {
    messages: [{ role: "user", content: "Weather in Paris?" }],
    max_tokens: 200,
    tools: [{ type: "function", function: { name: "get_weather", parameters } }],
    tool_choice: { type: "function", function: { name: "get_weather" } },
  };
  const [call] = (await ask(body)).choices[0].message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.ok(["Paris", "Rome"].includes(JSON.parse(call.function.arguments).city));
  const final = await client.chat.completions.stream({ ...GREEDY, ...body }).finalChatCompletion();
  assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
});

check("Errors are the client's own classes, with `param` and `code`", async () => {
  let error = await rejects(OpenAI.BadRequestError, ask({ temperature: 3 }));
  assert.deepEqual([error.status, error.param, error.code], [400, "temperature", "invalid_request"]);
  assert.match(error.requestID, /^req_/);
  error = await rejects(OpenAI.NotFoundError, ask({ model: "other" }));
  assert.equal(error.code, "model_not_found");
  error = await rejects(OpenAI.AuthenticationError, ask({}, { headers: { authorization: "Bearer wrong-key" } }));
  assert.equal(error.code, "invalid_api_key");
  error = await rejects(
    OpenAI.BadRequestError,
    ask({ messages: [{ role: "user", content: "word ".repeat(3000) }] }),
  );
  assert.deepEqual([error.code, error.param], ["context_length_exceeded", "messages"]);
});

check("503 carries Retry-After; the client waits for it and succeeds at the second try", async () => {
  await failNext("503");
  const error = await rejects(OpenAI.InternalServerError, ask({ seed: 902 }));
  assert.equal(error.status, 503);
  const wait = Number(error.headers.get("retry-after"));
  assert.ok(wait >= 1);
  const before = (await counts()).generations;
  const began = performance.now();
  await failNext("503");
  assert.ok((await ask({ seed: 902 }, { maxRetries: 2 })).choices[0].message.content);
  assert.equal((await counts()).generations - before, 2);
  assert.ok(performance.now() - began >= wait * 1000 - 5);
});

check("429 with Retry-After when a key is over its limit; the client waits until there is room again", async () => {
  const limited = client.withOptions({ apiKey: LIMITED_KEY });
  const endless = { ...GREEDY, max_tokens: 900, logit_bias: { 2: -100 } };
  const stream = await limited.chat.completions.create({ ...endless, stream: true });
  await stream[Symbol.asyncIterator]().next();
  const error = await rejects(OpenAI.RateLimitError, limited.chat.completions.create(GREEDY));
  assert.equal(error.code, "rate_limit_exceeded");
  assert.ok(Number(error.headers.get("retry-after")) >= 1);
  setTimeout(() => stream.controller.abort(), 500);
  const patient = limited.withOptions({ maxRetries: 5 });
  const { data, response } = await patient.chat.completions.create(GREEDY).withResponse();
  assert.ok(data.choices[0].message.content);
  assert.equal(response.headers.get("x-ratelimit-limit-requests"), "1000");
});

check("An Idempotency-Key gives the same answer again; another body with it is a conflict", async () => {
  const body = { temperature: 1, max_tokens: 12 };
  const named = { headers: { "idempotency-key": `scenario-${crypto.randomUUID()}` } };
  const first = await ask(body, named);
  const before = (await counts()).generations;
  assert.equal((await ask(body, named)).id, first.id);
  assert.equal((await counts()).generations, before);
  await rejects(OpenAI.ConflictError, ask({ ...body, max_tokens: 13 }, named));
});

check("A failure in mid-stream is thrown, after the text that came before it", async () => {
  await failNext("cut");
  const chunks = [];
  const error = await rejects(
    OpenAI.APIError,
    (async () => {
      for await (const chunk of await ask({ max_tokens: 200, stream: true })) chunks.push(chunk);
    })(),
  );
  assert.match(error.message, /verifier/);
  assert.ok(chunks.every((chunk) => chunk.choices[0].finish_reason === null));
});

check("Leaving a stream ends the verifier's request; a time limit is the client's own error", async () => {
  const before = (await counts()).gone;
  const endless = { max_tokens: 900, logit_bias: { 2: -100 } };
  for await (const chunk of await ask({ ...endless, stream: true })) {
    assert.equal(chunk.choices[0].delta.role, "assistant");
    break;
  }
  await waitFor(async () => (await counts()).gone === before + 1);
  await rejects(OpenAI.APIConnectionTimeoutError, ask(endless, { timeout: 50 }));
  await waitFor(async () => (await counts()).gone === before + 2);
});

await main();
