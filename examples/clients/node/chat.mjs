// The official OpenAI client against a local Forebay: models, chat and
// completions, plain and streamed, and the shape of an error.
// Usage: node chat.mjs [BASE_URL]
import assert from "node:assert/strict";
import OpenAI, { NotFoundError, BadRequestError } from "openai";

const client = new OpenAI({
  baseURL: process.argv[2] ?? "http://127.0.0.1:8080/v1",
  apiKey: "not-needed-locally",
  maxRetries: 0,
});
const messages = [{ role: "user", content: "Tell me a story about a fox in the forest." }];

const models = await client.models.list();
const model = models.data[0].id;
assert.equal((await client.models.retrieve(model)).id, model);
console.log("models:", models.data.map((m) => m.id).join(", "));

const plain = await client.chat.completions.create({ model, messages, temperature: 0 });
console.log("chat:", plain.choices[0].message.content);
assert.equal(plain.choices[0].finish_reason, "stop");
assert.equal(plain.usage.total_tokens, plain.usage.prompt_tokens + plain.usage.completion_tokens);

let streamed = "";
let usage;
const stream = await client.chat.completions.create({
  model, messages, temperature: 0, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(streamed, plain.choices[0].message.content, "stream and plain agree");
assert.equal(usage.completion_tokens, plain.usage.completion_tokens);

// The SDK's own accumulator is stricter than a loop over chunks.
const final = await client.chat.completions.stream({ model, messages, temperature: 0, n: 2 }).finalChatCompletion();
assert.deepEqual(final.choices.map((c) => c.message.content), [streamed, streamed]);

const logprobs = await client.chat.completions.create({
  model, messages, temperature: 0, max_completion_tokens: 5, logprobs: true, top_logprobs: 2,
});
assert.equal(logprobs.choices[0].finish_reason, "length");
assert.equal(logprobs.choices[0].logprobs.content.length, 5);
assert.equal(logprobs.choices[0].logprobs.content[0].top_logprobs.length, 2);

const text = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 16, temperature: 0 });
console.log("completion:", text.choices[0].text);
let pieces = "";
for await (const chunk of await client.completions.create({
  model, prompt: "Once upon a time", max_tokens: 16, temperature: 0, stream: true,
})) {
  pieces += chunk.choices[0].text;
}
assert.equal(pieces, text.choices[0].text);

await assert.rejects(client.chat.completions.create({ model: "no-such-model", messages }), (e) =>
  e instanceof NotFoundError && e.code === "model_not_found");
await assert.rejects(client.chat.completions.create({ model, messages, temperature: 3 }), (e) =>
  e instanceof BadRequestError && e.param === "temperature");

// Leaving a stream early must not disturb the next request.
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
  if (chunk.choices[0]?.delta.content) break;
}
assert.equal((await client.chat.completions.create({ model, messages, temperature: 0 })).choices[0].message.content, streamed);
console.log("ok: openai npm client", (await import("openai/version")).VERSION);
