"""The Messages API with the official Anthropic client against a local Forebay: text, streams, tools, a schema, counts and errors.

Usage: python3 messages.py [BASE_URL]      (needs: pip install anthropic)
"""
import json
import sys

import anthropic

base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
client = anthropic.Anthropic(base_url=base_url.removesuffix("/v1"), api_key="not-needed-locally", max_retries=0)
model = client.models.list().data[0].id
sky = {"model": model, "max_tokens": 60, "extra_body": {"temperature": 0}, "messages": [{"role": "user", "content": "What color is the sky?"}]}

plain = client.messages.create(system="Be brief.", **sky)
print("plain:", plain.content[0].text)
assert plain.type == "message" and plain.content[0].text and plain.stop_reason in ("end_turn", "max_tokens") and plain.usage.output_tokens > 0, plain

with client.messages.stream(system="Be brief.", **sky) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == final.content[0].text == plain.content[0].text, (text, final, plain)
assert final.usage.input_tokens + final.usage.cache_read_input_tokens == plain.usage.input_tokens + plain.usage.cache_read_input_tokens, (final.usage, plain.usage)

counted = client.messages.count_tokens(model=model, system="Be brief.", messages=sky["messages"])
assert counted.input_tokens == plain.usage.input_tokens + plain.usage.cache_read_input_tokens, (counted, plain.usage)

cut = client.messages.create(model=model, max_tokens=3, messages=[{"role": "user", "content": "Tell a story."}])
assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 3, cut
word = plain.content[0].text.split()[1]
stopped = client.messages.create(system="Be brief.", stop_sequences=["never said", word], **sky)
assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == word and word not in stopped.content[0].text, stopped

# A tool: the model asks for it, the program answers, the model goes on.
paint = {"name": "paint", "description": "Paints a thing.", "input_schema": {
    "type": "object", "properties": {"color": {"enum": ["red", "blue", "green"]}}, "required": ["color"], "additionalProperties": False}}
asked = [{"role": "user", "content": [{"type": "text", "text": "Paint the sky.", "cache_control": {"type": "ephemeral"}}]}]
with client.messages.stream(model=model, max_tokens=300, messages=asked, tools=[paint], tool_choice={"type": "tool", "name": "paint"}) as stream:
    called = stream.get_final_message()
use = called.content[-1]
print("tool:", use.name, use.input)
assert called.stop_reason == "tool_use" and use.type == "tool_use" and use.name == "paint" and use.input["color"] in ("red", "blue", "green"), called
after = client.messages.create(model=model, max_tokens=30, tools=[paint], tool_choice={"type": "none"}, messages=asked + [
    {"role": "assistant", "content": called.content},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "painted"}]}])
assert after.content[0].type == "text", after

# An answer that fits a schema.
schema = {"type": "object", "properties": {"thing": {"enum": ["sky", "grass"]}, "calm": {"type": "boolean"}}, "required": ["thing", "calm"], "additionalProperties": False}
formed = client.messages.create(**{**sky, "max_tokens": 200}, output_config={"format": {"type": "json_schema", "schema": schema}})
value = json.loads(formed.content[0].text)
print("value:", value)
assert value["thing"] in ("sky", "grass") and isinstance(value["calm"], bool), formed

for wrong, kind in (({"model": "other"}, anthropic.NotFoundError), ({"max_tokens": 0}, anthropic.BadRequestError)):
    try:
        client.messages.create(**{**sky, **wrong})
    except kind as e:
        assert e.request_id and e.body["type"] == "error" and e.body["error"]["message"], e.body
    else:
        raise AssertionError(f"{wrong} was taken")

print("ok: anthropic python", anthropic.__version__)
