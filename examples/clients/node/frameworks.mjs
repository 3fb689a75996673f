// Answers in a form by the Vercel AI SDK against a local Forebay: objects, streamed objects and tools.
//
// Usage: node frameworks.mjs [BASE_URL]      (needs: npm install ai @ai-sdk/openai-compatible zod)
import * as ai from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { z } from 'zod';

const base = process.argv[2] ?? 'http://127.0.0.1:8080/v1';
const id = (await (await fetch(`${base}/models`)).json()).data[0].id;
const model = createOpenAICompatible({ name: 'forebay', baseURL: base, supportsStructuredOutputs: true })(id);
const schema = z.strictObject({ thing: z.enum(['sky', 'grass', 'snow']), color: z.enum(['red', 'blue', 'green', 'white']) });
const prompt = 'What color is the sky?';
const common = { model, prompt, temperature: 0, maxOutputTokens: 200, maxRetries: 0 };

const { object } = await ai.generateObject({ ...common, schema });
console.log('generateObject:', schema.parse(object));

const stream = ai.streamObject({ ...common, schema });
for await (const _ of stream.partialObjectStream);
console.log('streamObject:', schema.parse(await stream.object));

let painted;
const paint = ai.tool({ description: 'Paints a thing', inputSchema: schema, execute: async (input) => ((painted = input), 'done') });
const { toolCalls } = await ai.generateText({ ...common, tools: { paint }, toolChoice: { type: 'tool', toolName: 'paint' } });
console.log('tool:', schema.parse(toolCalls[0].input), schema.parse(painted));

const streamed = ai.streamText({ ...common, tools: { paint }, toolChoice: 'required' });
for await (const _ of streamed.fullStream);
console.log('streamed tool:', schema.parse((await streamed.toolCalls)[0].input));
console.log('ok: frameworks, Vercel AI SDK');
