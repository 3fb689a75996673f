"""The official OpenAI client against a local Forebay: chat and completions, plain and streamed.

Usage: python3 chat.py [BASE_URL]      (needs: pip install openai)
"""
import sys

import openai

client = openai.OpenAI(
    base_url=sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1",
    api_key="not-needed-locally",
    max_retries=0,
)
messages = [{"role": "user", "content": "Tell me a story about a fox in the forest."}]

model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model

plain = client.chat.completions.create(model=model, messages=messages, temperature=0)
answer = plain.choices[0].message.content
print("chat:", answer)
assert plain.choices[0].finish_reason == "stop"

streamed, usage = "", None
for chunk in client.chat.completions.create(
    model=model, messages=messages, temperature=0, stream=True, stream_options={"include_usage": True}
):
    if chunk.choices:
        streamed += chunk.choices[0].delta.content or ""
    usage = chunk.usage or usage
assert streamed == answer, "stream and plain agree"
assert usage.completion_tokens == plain.usage.completion_tokens

text = client.completions.create(model=model, prompt="Once upon a time", max_tokens=16, temperature=0).choices[0].text
print("completion:", text)
pieces = "".join(
    c.choices[0].text
    for c in client.completions.create(model=model, prompt="Once upon a time", max_tokens=16, temperature=0, stream=True)
)
assert pieces == text

for kwargs, error, attribute, value in (
    (dict(model="no-such-model", messages=messages), openai.NotFoundError, "code", "model_not_found"),
    (dict(model=model, messages=messages, temperature=3), openai.BadRequestError, "param", "temperature"),
):
    try:
        client.chat.completions.create(**kwargs)
    except error as e:
        assert getattr(e, attribute) == value, e
    else:
        raise AssertionError(f"{kwargs} was accepted")
print("ok: openai python client", openai.__version__)
