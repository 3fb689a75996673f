// The Responses API with the official OpenAI client against a local Forebay: text, streams, values of a type, and tool calls.
// Usage: node responses.mjs [BASE_URL]
import assert from "node:assert/strict";
import OpenAI, { BadRequestError } from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({
  baseURL: process.argv[2] ?? "http://127.0.0.1:8080/v1",
  apiKey: "not-needed-locally",
  maxRetries: 0,
});
const model = (await client.models.list()).data[0].id;
const question = { model, input: "What color is the sky?", temperature: 0, max_output_tokens: 60 };

const plain = await client.responses.create(question);
console.log("plain:", plain.output_text);
assert.ok(plain.status === "completed" && plain.output_text);

let text = "", next = 0;
for await (const event of await client.responses.create({ ...question, stream: true })) {
  assert.equal(event.sequence_number, next++);
  if (event.type === "response.output_text.delta") text += event.delta;
}
assert.equal(text, plain.output_text);

const Paint = z.object({ thing: z.enum(["sky", "grass", "snow"]), color: z.enum(["red", "blue", "green", "white"]) });
const parsed = await client.responses.parse({ ...question, max_output_tokens: 200, text: { format: zodTextFormat(Paint, "paint") } });
console.log("parsed:", JSON.stringify(Paint.parse(parsed.output_parsed)));
const final = await client.responses
  .stream({ ...question, max_output_tokens: 200, text: { format: zodTextFormat(Paint, "paint") } })
  .finalResponse();
assert.deepEqual(final.output_parsed, parsed.output_parsed);

const tools = [{ type: "function", name: "paint", strict: true, parameters: z.toJSONSchema(Paint) }];
const called = await client.responses.create({ ...question, max_output_tokens: 200, tools, tool_choice: "required", parallel_tool_calls: false });
const call = called.output.find((item) => item.type === "function_call");
console.log("call:", call.name, call.arguments);
Paint.parse(JSON.parse(call.arguments));
const answer = await client.responses.create({
  ...question, tools, tool_choice: "none",
  input: [{ role: "user", content: question.input }, ...called.output, { type: "function_call_output", call_id: call.call_id, output: "done" }],
});
assert.ok(answer.output_text);

await assert.rejects(client.responses.create({ ...question, previous_response_id: "resp_1" }), (e) => e instanceof BadRequestError && e.param === "previous_response_id");
console.log("ok: openai npm client", (await import("openai/version")).VERSION);
