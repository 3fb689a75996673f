"""Answers in a form, by frameworks on top of the OpenAI API, against a local Forebay.

Each way to ask ends with a value that validates. Frameworks that are not installed are named and left out.

Usage: python3 frameworks.py [BASE_URL]
(needs: pip install openai; tries langchain-openai, instructor, pydantic-ai-slim[openai], litellm, llama-index-llms-openai-like)
"""
import importlib.util
import os
import sys
from typing import Literal

import openai
from pydantic import BaseModel, ConfigDict

base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
key = "not-needed-locally"
client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0)
model = client.models.list().data[0].id
question = "What color is the sky?"
# Where no schema is sent, only the prompt says what to write. The demo model does not understand that.
in_words = 'Answer in JSON like {"thing": "grass", "color": "green"}: what color is the sky?'
follows = model != "forebay-demo"


class Paint(BaseModel):
    """The color of a thing."""

    model_config = ConfigDict(extra="forbid")  # else a schema allows more members, and a small model writes them

    thing: Literal["sky", "grass", "snow"]
    color: Literal["red", "blue", "green", "white"]


def langchain():
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=model, base_url=base_url, api_key=key, temperature=0, max_tokens=200, max_retries=0)
    for method in ("function_calling", "json_schema"):
        yield method, chat.with_structured_output(Paint, method=method).invoke(question)
    yield "bind_tools", Paint(**chat.bind_tools([Paint], tool_choice="Paint").invoke(question).tool_calls[0]["args"])
    if follows:
        yield "json_mode", chat.with_structured_output(Paint, method="json_mode").invoke(in_words)
    yield "streamed", list(chat.with_structured_output(Paint, method="json_schema").stream(question))[-1]


def instructor():
    import instructor

    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
        patched = instructor.from_openai(client, mode=mode)
        messages = [{"role": "user", "content": question}]
        yield mode.name, patched.chat.completions.create(model=model, messages=messages, response_model=Paint, max_retries=0, temperature=0)
    if follows:
        patched = instructor.from_openai(client, mode=instructor.Mode.JSON)
        messages = [{"role": "user", "content": in_words}]
        yield "JSON", patched.chat.completions.create(model=model, messages=messages, response_model=Paint, max_retries=3, temperature=0, max_tokens=200)


def pydantic_ai():
    from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=base_url, api_key=key))
    for form in (ToolOutput, NativeOutput, PromptedOutput) if follows else (ToolOutput, NativeOutput):
        agent = Agent(chat, output_type=form(Paint), retries=4, model_settings={"temperature": 0.5, "max_tokens": 200})
        yield form.__name__, agent.run_sync(in_words if form is PromptedOutput else question).output


def litellm():
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks GitHub for prices
    import litellm

    messages = [{"role": "user", "content": question}]
    common = {"model": "openai/" + model, "api_base": base_url, "api_key": key, "temperature": 0, "max_tokens": 200, "messages": messages}
    answer = litellm.completion(response_format=Paint, **common)
    yield "response_format", Paint.model_validate_json(answer.choices[0].message.content)
    tool = openai.pydantic_function_tool(Paint)
    answer = litellm.completion(tools=[tool], tool_choice={"type": "function", "function": {"name": "Paint"}}, **common)
    yield "tools", Paint.model_validate_json(answer.choices[0].message.tool_calls[0].function.arguments)


def llama_index():
    from llama_index.llms.openai_like import OpenAILike

    chat = OpenAILike(model=model, api_base=base_url, api_key=key, is_chat_model=True, is_function_calling_model=True, temperature=0, max_tokens=200, max_retries=0)
    yield "structured_predict", chat.as_structured_llm(Paint).complete(question).raw


def installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent
        return False


tried = 0
for framework, module in ((langchain, "langchain_openai"), (instructor, "instructor"), (pydantic_ai, "pydantic_ai"), (litellm, "litellm"), (llama_index, "llama_index.llms.openai_like")):
    if not installed(module):
        print(module, "is not installed")
        continue
    for way, value in framework():
        assert isinstance(value, Paint), (module, way, value)
        print(f"{module}, {way}: {value}")
        tried += 1
assert tried, "none of the frameworks is installed"
print("ok: frameworks,", tried, "ways to ask")
