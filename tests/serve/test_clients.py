"""Clients that no one here wrote: the official openai client, and the generate client of `renderers`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from renderers.client import OverlongPromptError, generate
from served import app_over, listening

from turnwise.testing import FakeEngine, tiny_model
from turnwise.text import Dialogue, choose

TALK = [{"role": "user", "content": "hi"}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"far": true}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def talk(app: Any, work: Callable[[openai.AsyncOpenAI], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with listening(app) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            return await work(client)

    return asyncio.run(run())


def test_openai_s_client_chats():
    def work(client):
        return client.chat.completions.create(model="tiny", messages=TALK, max_tokens=5, seed=3, n=2, temperature=0.5)

    said = talk(app_over(), work)
    assert [choice.finish_reason for choice in said.choices] == ["length", "length"]
    assert said.usage.completion_tokens == 10


def test_openai_s_client_streams_what_it_gets_whole():
    async def work(client):
        asked = {"model": "tiny", "messages": TALK, "max_tokens": 30, "seed": 3}
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        return whole, text, chunks[-1].usage

    whole, text, usage = talk(app_over(), work)
    assert (text, usage) == (whole.choices[0].message.content, whole.usage)


def test_openai_s_client_calls_tools_and_answers_them():
    words = tiny_model().tokenizer.encode(CALL, add_special_tokens=False)

    async def work(client):
        said = await client.chat.completions.create(model="tiny", messages=TALK, tools=TOOLS)
        call = said.choices[0].message.tool_calls[0]
        more = [*TALK, said.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "a wall"}]
        return said.choices[0], call, await client.chat.completions.create(model="tiny", messages=more, tools=TOOLS)

    choice, call, after = talk(app_over(FakeEngine([[*words, 2]])), work)
    assert (choice.finish_reason, call.function.name, call.function.arguments) == (
        "tool_calls",
        "look",
        '{"far": true}',
    )
    assert after.choices[0].finish_reason == "tool_calls"


def test_openai_s_client_gets_log_probabilities_of_each_token_and_the_likeliest():
    def work(client):
        return client.chat.completions.create(
            model="tiny", messages=TALK, max_tokens=5, seed=3, logprobs=True, top_logprobs=3
        )

    content = talk(app_over(), work).choices[0].logprobs.content
    assert len(content) == 5
    for token in content:
        assert len(token.top_logprobs) == 3
        assert token.logprob <= max(top.logprob for top in token.top_logprobs) + 1e-6


def test_openai_s_client_completes_and_lists_models():
    async def work(client):
        said = await client.completions.create(model="tiny", prompt="hi", max_tokens=4, logprobs=1, stop=["zz"])
        return said.choices[0], [model.id async for model in await client.models.list()]

    choice, models = talk(app_over(), work)
    assert (len(choice.logprobs.tokens), models) == (4, ["tiny"])


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"model": "other"}, openai.NotFoundError),
        ({"max_tokens": 0}, openai.UnprocessableEntityError),
        ({"extra_body": {"logit_bias": {"999999": 1.0}}}, openai.BadRequestError),
        ({"presence_penalty": 1.0}, openai.UnprocessableEntityError),
    ],
)
def test_openai_s_client_raises_its_own_errors_with_our_words(more, error):
    def work(client):
        return client.chat.completions.create(**{"model": "tiny", "messages": TALK, **more})

    with pytest.raises(error, match=r"found .*; expected "):
        talk(app_over(), work)


def test_renderers_client_plays_turns_in_a_session_and_reads_each_token_once():
    policy = tiny_model()
    app = app_over(policy=policy)
    renderer = choose(policy.tokenizer, "auto", "tiny")

    async def work(client):
        dialogue, turns = Dialogue(renderer), []
        for turn in range(3):
            dialogue.add([{"role": "user", "content": f"turn {turn}"}])
            said = await generate(
                client=client,
                renderer=renderer,
                messages=dialogue.messages,
                prompt_ids=dialogue.prompt_ids.tolist(),
                model="tiny",
                sampling_params={"max_tokens": 8, "seed": turn, "temperature": 1.0},
                extra_headers={"X-Session-ID": "episode-1"},
            )
            dialogue.reply(said["completion_ids"])
            turns.append(said)
        return turns

    turns = talk(app, work)
    stats = app.state.server.engine.stats()
    whole = len(turns[-1]["prompt_ids"]) + len(turns[-1]["completion_ids"])
    assert all(len(t["completion_ids"]) == len(t["completion_logprobs"]) for t in turns)
    assert stats["tokens_read"] == whole - 1
    assert stats["sessions"] == 0


def test_renderers_client_refuses_a_prompt_longer_than_the_context_the_server_names():
    policy = tiny_model()
    renderer = choose(policy.tokenizer, "auto", "tiny")

    def work(client):
        ids = [5] * 5000
        return generate(client=client, renderer=renderer, messages=TALK, model="tiny", prompt_ids=ids)

    with pytest.raises(OverlongPromptError):
        talk(app_over(policy=policy), work)
