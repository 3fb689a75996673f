// Tool calls with the official OpenAI client against a local Forebay: named, streamed,
// run by the client's own loop, and answered.
// The demo model does not understand tools. It calls because tool_choice says so, and what
// it says fits the schema.
// Usage: node tools.mjs [BASE_URL]
import assert from "node:assert/strict";
import OpenAI, { BadRequestError } from "openai";

const client = new OpenAI({
  baseURL: process.argv[2] ?? "http://127.0.0.1:8080/v1",
  apiKey: "not-needed-locally",
  maxRetries: 0,
});
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "What color is the sky?" }];
const parameters = {
  type: "object",
  properties: { thing: { enum: ["sky", "grass", "snow"] }, color: { enum: ["red", "blue", "green", "white"] } },
  required: ["thing", "color"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "paint", description: "Paints a thing in a color", parameters, strict: true } }];
const tool_choice = { type: "function", function: { name: "paint" } };
const request = { model, messages, tools, tool_choice, temperature: 0 };

const plain = (await client.chat.completions.create(request)).choices[0];
assert.equal(plain.finish_reason, "tool_calls");
assert.equal(plain.message.content, null);
const call = plain.message.tool_calls[0];
console.log("call:", call.function.name, call.function.arguments);
assert.ok(parameters.properties.color.enum.includes(JSON.parse(call.function.arguments).color));

// The SDK's own accumulator is stricter than a loop over chunks.
const streamed = (await client.chat.completions.stream(request).finalChatCompletion()).choices[0];
assert.equal(streamed.message.tool_calls[0].function.arguments, call.function.arguments);
assert.equal(streamed.finish_reason, "tool_calls");

// The SDK's loop calls the function.
for (const stream of [false, true]) {
  let painted;
  const runner = client.chat.completions.runTools({
    model, messages, tool_choice, temperature: 0, stream,
    tools: [{ type: "function", function: { name: "paint", description: "Paints a thing in a color", parameters, parse: JSON.parse, function: (args) => { painted = args; return "done"; } } }],
  });
  await runner.done();
  assert.ok(parameters.properties.thing.enum.includes(painted?.thing), `the function got ${JSON.stringify(painted)}`);
}

const answer = await client.chat.completions.create({
  ...request, tool_choice: "none", max_tokens: 60,
  messages: [...messages, plain.message, { role: "tool", tool_call_id: call.id, content: "done" }],
});
console.log("then:", answer.choices[0].message.content);
assert.ok(answer.choices[0].message.content && !answer.choices[0].message.tool_calls);

await assert.rejects(client.chat.completions.create({ ...request, tool_choice: { type: "function", function: { name: "other" } } }), (e) =>
  e instanceof BadRequestError && e.param === "tool_choice");
console.log("ok: openai npm client", (await import("openai/version")).VERSION);
