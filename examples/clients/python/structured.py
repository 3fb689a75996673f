"""Structured answers with the official OpenAI client against a local Forebay: parsed, streamed, and refused.

If the package instructor is installed, it is tried too.

Usage: python3 structured.py [BASE_URL]      (needs: pip install openai)
"""
import sys
from enum import Enum
from typing import Literal, Optional

import openai
from pydantic import BaseModel, ConfigDict, Field

client = openai.OpenAI(
    base_url=sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1",
    api_key="not-needed-locally",
    max_retries=0,
)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Invent a fox, as JSON."}]


class Mood(str, Enum):
    sly = "sly"
    sleepy = "sleepy"


class Den(BaseModel):
    size: int
    tidy: bool


class Fox(BaseModel):
    """What the answer must be."""

    kind: Literal["fox"]
    mood: Mood
    dens: list[Den]
    friend: Optional["Fox"]
    note: Optional[Literal["shy", "bold"]]


def foxes():
    """Answers may be cut by max_tokens: the client says so, and another seed is tried."""
    for seed in range(50):
        try:
            yield client.chat.completions.parse(model=model, messages=messages, response_format=Fox, temperature=1, seed=seed, max_tokens=400)
        except openai.LengthFinishReasonError:
            continue


answers = foxes()
for _ in range(5):
    completion = next(answers)
    fox = completion.choices[0].message.parsed
    assert isinstance(fox, Fox) and completion.choices[0].finish_reason == "stop", completion
    print("parsed:", fox.model_dump_json())


class Point(BaseModel):
    model_config = ConfigDict(extra="forbid")  # else a schema allows more members, and the demo model writes them

    x: int = Field(ge=0, le=99)
    label: Literal["near", "far"]


with client.chat.completions.stream(model=model, messages=messages, response_format=Point, temperature=0) as stream:
    for event in stream:
        pass
    final = stream.get_final_completion().choices[0].message
assert isinstance(final.parsed, Point) and 0 <= final.parsed.x <= 99, final
print("streamed:", final.parsed)

anything = client.chat.completions.create(model=model, messages=messages, response_format={"type": "json_object"}, max_tokens=5)
assert anything.choices[0].message.content.startswith("{"), anything

choice = client.chat.completions.create(model=model, messages=messages, extra_body={"structured_outputs": {"choice": ["red fox", "grey fox"]}})
assert choice.choices[0].message.content in ("red fox", "grey fox"), choice

try:
    client.chat.completions.create(
        model=model,
        messages=messages,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"a": {"$dynamicRef": "#x"}}}}},
    )
except openai.BadRequestError as e:
    assert e.param == "response_format.json_schema.schema" and "/properties/a/$dynamicRef" in e.message, e
else:
    raise AssertionError("a schema that cannot be enforced was accepted")

try:
    import instructor
except ImportError:
    print("instructor is not installed")
else:
    # Its mode JSON asks for any JSON object, and puts the schema into the prompt, which the demo model does not understand.
    patched = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    point = patched.chat.completions.create(model=model, messages=messages, response_model=Point, max_retries=0, temperature=0)
    assert isinstance(point, Point), point
    print("instructor", instructor.__version__, point)
print("ok: openai python client", openai.__version__)
