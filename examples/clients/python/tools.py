"""Tool calls with the official OpenAI client against a local Forebay: named, streamed, parsed, and answered.

The demo model does not understand tools. It calls because tool_choice says so, and what it says fits the schema.

Usage: python3 tools.py [BASE_URL]      (needs: pip install openai)
"""
import json
import sys
from typing import Literal

import openai
from pydantic import BaseModel


class paint(BaseModel):
    """Paints a thing in a color."""

    thing: Literal["sky", "grass", "snow"]
    color: Literal["red", "blue", "green", "white"]


client = openai.OpenAI(
    base_url=sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1",
    api_key="not-needed-locally",
    max_retries=0,
)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "What color is the sky?"}]
tools = [openai.pydantic_function_tool(paint)]
named = {"type": "function", "function": {"name": "paint"}}

plain = client.chat.completions.parse(model=model, messages=messages, tools=tools, tool_choice=named, temperature=0)
choice = plain.choices[0]
assert choice.finish_reason == "tool_calls" and choice.message.content is None
call = choice.message.tool_calls[0]
print("call:", call.function.name, call.function.arguments)
assert isinstance(call.function.parsed_arguments, paint)

with client.chat.completions.stream(model=model, messages=messages, tools=tools, tool_choice=named, temperature=0) as stream:
    kinds = {event.type for event in stream}
    streamed = stream.get_final_completion().choices[0]
assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds, kinds
assert streamed.message.tool_calls[0].function.arguments == call.function.arguments, "stream and plain agree"
assert streamed.finish_reason == "tool_calls"

answer = client.chat.completions.create(
    model=model, tools=tools, tool_choice="none", temperature=0, max_tokens=60,
    messages=messages + [choice.message, {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"done": True})}],
)
print("then:", answer.choices[0].message.content)
assert answer.choices[0].message.tool_calls is None and answer.choices[0].message.content

several = client.chat.completions.create(model=model, messages=messages, tools=tools, tool_choice="required", parallel_tool_calls=False, temperature=1, seed=3, n=3)
for choice in several.choices:
    assert len(choice.message.tool_calls) == 1 and paint.model_validate_json(choice.message.tool_calls[0].function.arguments)
assert len({c.message.tool_calls[0].id for c in several.choices}) == 3

try:
    client.chat.completions.create(model=model, messages=messages, tools=tools, tool_choice={"type": "function", "function": {"name": "other"}})
except openai.BadRequestError as e:
    assert e.param == "tool_choice", e
else:
    raise AssertionError("a tool that is not there was accepted")
print("ok: openai python client", openai.__version__)
