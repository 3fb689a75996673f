// Structured answers with the official OpenAI client against a local Forebay: parsed, streamed, and refused.
// Usage: node structured.mjs [BASE_URL]
import assert from "node:assert/strict";
import OpenAI, { BadRequestError } from "openai";
import { LengthFinishReasonError } from "openai/error";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({
  baseURL: process.argv[2] ?? "http://127.0.0.1:8080/v1",
  apiKey: "not-needed-locally",
  maxRetries: 0,
});
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Invent a fox, as JSON." }];

const Fox = z.object({
  kind: z.literal("fox"),
  mood: z.enum(["sly", "sleepy"]),
  dens: z.array(z.object({ size: z.int(), tidy: z.boolean() })),
  note: z.union([z.enum(["shy", "bold"]), z.null()]),
});

// Answers may be cut by max_tokens: the client says so, and another seed is tried.
let parsed = 0;
for (let seed = 0; parsed < 5 && seed < 50; seed++) {
  try {
    const completion = await client.chat.completions.parse({
      model, messages, response_format: zodResponseFormat(Fox, "fox"), temperature: 1, seed, max_tokens: 400,
    });
    console.log("parsed:", JSON.stringify(Fox.parse(completion.choices[0].message.parsed)));
    assert.equal(completion.choices[0].finish_reason, "stop");
    parsed++;
  } catch (e) {
    if (!(e instanceof LengthFinishReasonError)) throw e;
  }
}
assert.equal(parsed, 5);

const Point = z.object({ x: z.int().min(0).max(99), label: z.enum(["near", "far"]) });
const final = await client.chat.completions
  .stream({ model, messages, response_format: zodResponseFormat(Point, "point"), temperature: 0 })
  .finalChatCompletion();
console.log("streamed:", JSON.stringify(Point.parse(final.choices[0].message.parsed)));

const choice = await client.chat.completions.create({ model, messages, structured_outputs: { choice: ["red fox", "grey fox"] } });
assert.ok(["red fox", "grey fox"].includes(choice.choices[0].message.content));

await assert.rejects(client.chat.completions.create({
  model, messages,
  response_format: { type: "json_schema", json_schema: { name: "x", schema: { properties: { a: { $dynamicRef: "#x" } } } } },
}), (e) => e instanceof BadRequestError && e.param === "response_format.json_schema.schema" && e.message.includes("/properties/a/$dynamicRef"));
console.log("ok: openai npm client", (await import("openai/version")).VERSION);
