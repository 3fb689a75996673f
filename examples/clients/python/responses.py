"""The Responses API with the official OpenAI client against a local Forebay: text, streams, values of a type, and tool calls.

Usage: python3 responses.py [BASE_URL]      (needs: pip install openai)
"""
import json
import sys
from typing import Literal

import openai
from pydantic import BaseModel

client = openai.OpenAI(
    base_url=sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1",
    api_key="not-needed-locally",
    max_retries=0,
)
model = client.models.list().data[0].id

plain = client.responses.create(model=model, instructions="Be brief.", input="What color is the sky?", temperature=0, max_output_tokens=60)
print("plain:", plain.output_text)
assert plain.status == "completed" and plain.output_text and plain.usage.output_tokens > 0, plain

with client.responses.stream(model=model, instructions="Be brief.", input="What color is the sky?", temperature=0, max_output_tokens=60) as stream:
    events = list(stream)
    final = stream.get_final_response()
assert final.output_text == plain.output_text, (final.output_text, plain.output_text)
assert [e.sequence_number for e in events if hasattr(e, "sequence_number")][:2] == [0, 1], events[:2]
assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == plain.output_text

cut = client.responses.create(model=model, input="Tell a story.", max_output_tokens=3)
assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut

# The whole conversation goes back with each request: nothing is kept here.
second = client.responses.create(model=model, max_output_tokens=30, input=[{"role": "user", "content": "Hi."}, *plain.output, {"role": "user", "content": "And the grass?"}])
assert second.output_text, second


class Paint(BaseModel):
    thing: Literal["sky", "grass", "snow"]
    color: Literal["red", "blue", "green", "white"]


parsed = client.responses.parse(model=model, input="What color is the sky?", text_format=Paint, temperature=0)
print("parsed:", parsed.output_parsed)
assert isinstance(parsed.output_parsed, Paint), parsed
with client.responses.stream(model=model, input="What color is the sky?", text_format=Paint, temperature=0) as stream:
    for _ in stream:
        pass
    assert stream.get_final_response().output_parsed == parsed.output_parsed

tool = {"type": "function", "name": "paint", "description": "Paints a thing", "strict": True, "parameters": {**Paint.model_json_schema(), "additionalProperties": False}}
asked = [{"role": "user", "content": "Paint the sky."}]
common = {"model": model, "tools": [tool, {"type": "web_search"}], "temperature": 0}
called = client.responses.create(input=asked, tool_choice={"type": "function", "name": "paint"}, **common)
(call,) = [item for item in called.output if item.type == "function_call"]
print("call:", call.name, call.arguments)
assert call.name == "paint" and Paint.model_validate_json(call.arguments) and called.status == "completed"
with client.responses.stream(input=asked, tool_choice="required", parallel_tool_calls=False, **common) as stream:
    arguments = "".join(e.delta for e in stream if e.type == "response.function_call_arguments.delta")
    (streamed,) = [item for item in stream.get_final_response().output if item.type == "function_call"]
assert streamed.arguments == arguments and Paint.model_validate_json(arguments)
answer = client.responses.create(
    input=asked + called.output + [{"type": "function_call_output", "call_id": call.call_id, "output": json.dumps({"done": True})}],
    tool_choice="none", max_output_tokens=40, **common,
)
print("then:", answer.output_text)
assert answer.output_text and all(item.type != "function_call" for item in answer.output)

custom = client.responses.create(model=model, input=asked, tools=[{"type": "custom", "name": "say", "description": "Says a text"}], tool_choice={"type": "custom", "name": "say"}, max_output_tokens=200, extra_body={"seed": 1})
assert custom.output[-1].type == "custom_tool_call" and isinstance(custom.output[-1].input, str), custom

for refused, param in (({"previous_response_id": "resp_1"}, "previous_response_id"), ({"store": True}, "store"), ({"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]}, "tool_choice")):
    try:
        client.responses.create(model=model, input="Hi.", **refused)
    except openai.BadRequestError as e:
        assert e.param == param, e
    else:
        raise AssertionError(f"{param} was accepted")
print("ok: openai python client", openai.__version__)
