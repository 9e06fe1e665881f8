// The AI SDK with its provider for OpenAI-compatible servers: text, streams, objects, tools, errors, retries.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, Output, streamText, tool } from "ai";
import { z } from "zod";
import { check, counts, failNext, KEY, main, MODEL, rejects, served, URL, waitFor } from "./checks.mjs";

const nexus = createOpenAICompatible({
  name: "nexus",
  baseURL: URL,
  apiKey: KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const PROMPT = "Name three colours of the sea.";
const GREEDY = { model: nexus(MODEL), prompt: PROMPT, temperature: 0, maxOutputTokens: 24, maxRetries: 0 };

check("generateText and streamText give the same text, with usage", async () => {
  const whole = await generateText(GREEDY);
  assert.ok(whole.text.length > 0);
  assert.ok(["stop", "length"].includes(whole.finishReason));
  const { usage } = whole;
  assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
  assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
  const streamed = streamText(GREEDY);
  let text = "";
  for await (const delta of streamed.textStream) text += delta;
  assert.equal(text, whole.text);
  assert.equal((await streamed.usage).outputTokens, usage.outputTokens);
  assert.equal(await streamed.finishReason, whole.finishReason);
});

check("The response carries our headers", async () => {
  const { response } = await generateText(GREEDY);
  assert.match(response.headers["x-request-id"], /^req_/);
  assert.equal(response.modelId, MODEL);
});

check("Legacy completions through the completion model", async () => {
  const { text } = await generateText({ ...GREEDY, model: nexus.completionModel(MODEL) });
  assert.ok(text.length > 0);
});

check("Extensions go through the provider's own options", async () => {
  const { fullStream } = streamText({
    ...GREEDY,
    includeRawChunks: true,
    providerOptions: { nexus: { nexus: { privacy: "verifier_only", trace: true } } },
  });
  const told = [];
  for await (const part of fullStream) {
    if (part.type === "raw" && part.rawValue.nexus) told.push(part.rawValue.nexus);
  }
  assert.equal(told.at(-1).nodes, "none");
  assert.ok(told.at(-1).trace.length > 0);
});

check("A schema: the answer is an object that keeps it", async () => {
  const schema = z.object({ name: z.string(), sizes: z.array(z.number()).max(3), capital: z.boolean() });
  const { output } = await generateText({
    ...GREEDY,
    maxOutputTokens: 300,
    output: Output.object({ schema }),
  });
  assert.deepEqual(output, schema.parse(output));
});

check("A tool is called with arguments that keep its schema, whole and streamed", async () => {
  await served("tools");
  const inputSchema = z.object({ city: z.enum(["Paris", "Rome"]) });
  const options = {
    ...GREEDY,
    prompt: "Weather in Paris?",
    maxOutputTokens: 200,
    tools: { weather: tool({ description: "The weather in a city.", inputSchema }) },
    toolChoice: { type: "tool", toolName: "weather" },
  };
  const [call] = (await generateText(options)).toolCalls;
  assert.equal(call.toolName, "weather");
  assert.deepEqual(call.input, inputSchema.parse(call.input));
  const [streamed] = await streamText(options).toolCalls;
  assert.deepEqual([streamed.toolName, streamed.input], [call.toolName, call.input]);
});

check("Errors are APICallError, with our status and message", async () => {
  let error = await rejects(APICallError, generateText({ ...GREEDY, temperature: 3 }));
  assert.equal(error.statusCode, 400);
  assert.equal(error.isRetryable, false);
  assert.match(error.message, /temperature/);
  error = await rejects(APICallError, generateText({ ...GREEDY, model: nexus("other") }));
  assert.equal(error.statusCode, 404);
});

check("503 is retried after Retry-After; without retries it is a retryable error", async () => {
  await failNext("503");
  const error = await rejects(APICallError, generateText(GREEDY));
  assert.ok(error.isRetryable && error.statusCode === 503);
  const wait = Number(error.responseHeaders["retry-after"]);
  const before = (await counts()).generations;
  const began = performance.now();
  await failNext("503");
  assert.ok((await generateText({ ...GREEDY, maxRetries: 2 })).text);
  assert.equal((await counts()).generations - before, 2);
  assert.ok(performance.now() - began >= wait * 1000 - 5);
});

check("A failure in mid-stream is an error part of the stream", async () => {
  await failNext("cut");
  const { fullStream } = streamText({ ...GREEDY, maxOutputTokens: 200, onError: () => {} });
  const parts = [];
  for await (const part of fullStream) parts.push(part);
  assert.ok(parts.some((part) => part.type === "error"));
  const finish = parts.find((part) => part.type === "finish");
  assert.ok(!finish || finish.finishReason !== "stop");
});

check("An abort signal ends the verifier's request", async () => {
  const before = (await counts()).gone;
  const abort = new AbortController();
  const { textStream } = streamText({
    ...GREEDY,
    maxOutputTokens: 900,
    abortSignal: abort.signal,
    providerOptions: { nexus: { logit_bias: { 2: -100 } } },
    onError: () => {},
  });
  for await (const delta of textStream) {
    if (delta) abort.abort();
  }
  await waitFor(async () => (await counts()).gone === before + 1);
});

await main();
