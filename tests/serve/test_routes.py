"""Every route answers in the shape of its specification, and the same tokens whatever route they are asked on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from served import ADMIN, app_over, ask, asks, direct, events

from turnwise.engine import LocalEngine
from turnwise.testing import FakeEngine, tiny_model
from turnwise.types import Sampling
from turnwise.weights.files import publish

PROMPT = [5, 6, 7]
TALK = [{"role": "user", "content": "hi"}]


def alone(prompt: list[int], seed: int, limit: int) -> tuple[list[int], list[float]]:
    """What the engine itself samples."""

    async def sampled() -> tuple[list[int], list[float]]:
        engine = LocalEngine(tiny_model())
        said = await engine.step(await engine.open(prompt, Sampling(max_tokens=limit), seed=seed), [])
        return said.ids.tolist(), said.logprobs.tolist()

    return asyncio.run(sampled())


def generate(**more: Any) -> dict[str, Any]:
    params = {"max_tokens": 6, "seed": 3, "logprobs": 0} | more.pop("params", {})
    return {"token_ids": PROMPT, "model": "tiny", "sampling_params": params, **more}


def test_generate_answers_the_engine_s_own_tokens_with_their_log_probabilities():
    choice = ask("/inference/v1/generate", generate()).json()["choices"][0]
    ids, logprobs = alone(PROMPT, 3, 6)
    assert choice["token_ids"] == ids
    assert [c["token"] for c in choice["logprobs"]["content"]] == [f"token_id:{i}" for i in ids]
    assert [c["logprob"] for c in choice["logprobs"]["content"]] == pytest.approx(logprobs)
    assert (choice["finish_reason"], choice["policy_versions"]) == ("length", [0] * 6)


def test_where_vllm_would_tell_of_experts_changes_nothing_but_must_be_a_place():
    said = [ask("/inference/v1/generate", generate(params=more)) for more in ({}, {"routed_experts_prompt_start": 2})]
    assert said[0].json()["choices"] == said[1].json()["choices"]
    wrong = generate(params={"routed_experts_prompt_start": -1})
    assert ask("/inference/v1/generate", wrong).status_code == 422


def test_a_stream_of_tokens_is_the_answer_in_pieces():
    whole = ask("/inference/v1/generate", generate()).json()["choices"][0]
    heard = events(ask("/inference/v1/generate", generate(stream=True)).text)
    pieces = [e["choices"][0] for e in heard]
    assert [i for p in pieces for i in p["token_ids"]] == whole["token_ids"]
    assert [c for p in pieces for c in p["logprobs"]["content"]] == whole["logprobs"]["content"]
    assert [p["finish_reason"] for p in pieces][-1] == "length"


def test_n_completions_are_siblings_with_seeds_of_their_own():
    choices = ask("/inference/v1/generate", generate(params={"n": 3})).json()["choices"]
    assert [c["token_ids"] for c in choices] == [alone(PROMPT, 3 + n, 6)[0] for n in range(3)]


def test_a_session_reads_only_what_it_does_not_hold_and_answers_the_same():
    async def both() -> tuple[list[Any], float, float]:
        app = app_over()
        answers = []
        async with direct(app) as http:
            for headers in ({}, {"X-Session-ID": "s"}):
                prompt = list(range(5, 60))
                for seed in range(3):
                    body = generate(token_ids=prompt, params={"seed": seed})
                    said = (await http.post("/inference/v1/generate", json=body, headers=headers)).json()["choices"][0]
                    answers.append(said["token_ids"])
                    prompt = [*prompt, *said["token_ids"], 9, 10]
                read = app.state.server.engine.stats()["tokens_read"]
                if not headers:
                    without = read
        return answers, without, read - without

    answers, without, within = asyncio.run(both())
    assert answers[:3] == answers[3:]
    assert within < without / 2


def test_chat_tells_content_usage_and_tokens():
    body = {"messages": TALK, "max_tokens": 6, "seed": 3, "return_token_ids": True, "logprobs": True}
    said = ask("/v1/chat/completions", body).json()
    choice = said["choices"][0]
    ids, logprobs = alone(said["prompt_token_ids"], 3, 6)
    assert choice["token_ids"] == ids
    assert [c["logprob"] for c in choice["logprobs"]["content"]] == pytest.approx(logprobs)
    assert said["usage"] == {"prompt_tokens": 21, "completion_tokens": 6, "total_tokens": 27}


def scripted(text: str) -> FakeEngine:
    """An engine that says this and stops."""
    return FakeEngine([[*tiny_model().tokenizer.encode(text, add_special_tokens=False), 2]])


CALL = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"far": true}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def test_a_tool_call_is_read_off_the_reply():
    app = app_over(scripted(CALL))
    choice = ask("/v1/chat/completions", {"messages": TALK, "tools": TOOLS}, app).json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "I look.")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"far": true}'}


def test_a_streamed_tool_call_never_shows_its_tags_as_content():
    app = app_over(scripted(CALL))
    body = {"messages": TALK, "tools": TOOLS, "stream": True, "stream_options": {"include_usage": True}}
    heard = events(ask("/v1/chat/completions", body, app).text)
    deltas = [e["choices"][0]["delta"] for e in heard if e["choices"]]
    assert "".join(d.get("content", "") for d in deltas) == "I look."
    assert deltas[-1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"far": true}'}
    assert heard[-1]["usage"]["completion_tokens"] == len(scripted(CALL).replies[0])


def test_reasoning_is_told_apart_from_content():
    app = app_over(scripted("<think>\nso\n</think>\n\nyes"))
    message = ask("/v1/chat/completions", {"messages": TALK}, app).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("so", "yes")


def test_a_stop_string_ends_the_reply_and_is_not_part_of_its_text():
    policy = tiny_model()
    whole = ask("/v1/completions", {"prompt": "hi", "max_tokens": 40, "seed": 3}, app_over(policy=policy)).json()
    text = whole["choices"][0]["text"]
    stop = next(text[n : n + 2] for n in range(5, len(text)) if "\ufffd" not in text[n : n + 2])
    body = {"prompt": "hi", "max_tokens": 40, "seed": 3, "stop": [stop], "return_token_ids": True}
    choice = ask("/v1/completions", body).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (text[: text.index(stop)], "stop")
    assert stop in policy.tokenizer.decode(choice["token_ids"])
    heard = events(ask("/v1/completions", {**body, "stream": True}).text)
    assert "".join(e["choices"][0]["text"] for e in heard) == choice["text"]


def test_prompts_of_text_and_tokens_are_answered_in_order():
    ids = tiny_model().tokenizer.encode("hi", add_special_tokens=False)
    body = {"max_tokens": 4, "seed": 3, "n": 2}
    texts = [c["text"] for c in ask("/v1/completions", {"prompt": ["hi", "ho"], **body}).json()["choices"]]
    alone = [c["text"] for c in ask("/v1/completions", {"prompt": ids, **body}).json()["choices"]]
    assert texts[:2] == alone
    assert len(texts) == 4


def test_echo_puts_the_prompt_before_its_completion():
    body = {"prompt": "hi", "max_tokens": 4, "seed": 3}
    plain = ask("/v1/completions", body).json()["choices"][0]["text"]
    assert ask("/v1/completions", {**body, "echo": True}).json()["choices"][0]["text"] == "hi" + plain


def test_the_model_is_listed_with_its_context():
    card = ask("/v1/models", method="GET").json()["data"][0]
    assert (card["id"], card["owned_by"], card["max_model_len"]) == ("tiny", "turnwise", 4096)
    assert ask("/v1/models/tiny", method="GET").json() == card
    assert ask("/v1/models/other", method="GET").status_code == 404


def test_metrics_count_requests_by_route_and_tell_the_engine_s_numbers():
    app = app_over()
    calls = [{"path": "/inference/v1/generate", "json": generate(stream=stream)} for stream in (False, True)]
    *_, said = asks(app, *calls, {"method": "GET", "path": "/metrics"})
    page = said.text
    assert 'turnwise_requests_total{route="/inference/v1/generate",status="200"} 2.0' in page
    assert "turnwise_completion_tokens_total 12.0" in page
    assert "turnwise_engine_tokens_sampled 12.0" in page
    assert "turnwise_first_token_seconds_count 1.0" in page


BEARER = {"Authorization": f"Bearer {ADMIN}"}


def test_weights_are_loaded_while_a_session_is_live_and_their_version_is_on_every_token(tmp_path):
    publish(tiny_model(seed=1).save, tmp_path, 7)
    within = {"path": "/inference/v1/generate", "json": generate(), "headers": {"X-Session-ID": "s"}}
    update = {"path": "/update_weights", "json": {"folder": str(tmp_path)}, "headers": BEARER}
    before, told, after = (said.json() for said in asks(app_over(), within, update, within))
    fresh = ask("/inference/v1/generate", generate(), app_over(policy=tiny_model(seed=1))).json()["choices"][0]
    assert (told, before["choices"][0]["policy_versions"]) == ({"paused": False, "version": 7}, [0] * 6)
    assert after["choices"][0]["token_ids"] == fresh["token_ids"]
    assert after["choices"][0]["policy_versions"] == [7] * 6


def test_a_paused_server_is_not_ready_and_goes_on_after_resume():
    ready = {"path": "/ready", "method": "GET"}
    pause, resume = ({"path": path, "headers": BEARER} for path in ("/pause", "/resume"))
    said = asks(app_over(), pause, ready, resume, ready)
    assert [s.status_code for s in said] == [200, 503, 200, 200]
    assert [said[0].json(), said[2].json()] == [{"paused": True, "version": 0}, {"paused": False, "version": 0}]


@pytest.mark.parametrize(
    ("headers", "status"), [({}, 401), ({"Authorization": "Bearer wrong"}, 403), ({"Authorization": "Basic x"}, 401)]
)
def test_admin_routes_want_the_token(headers, status):
    for path, body in [("/pause", None), ("/resume", None), ("/update_weights", {"folder": "x"})]:
        assert ask(path, body, headers=headers).status_code == status


class Noting(FakeEngine):
    """Says one thing, and keeps what it was asked."""

    def __init__(self, text: str) -> None:
        super().__init__(scripted(text).replies)
        self.prompts: list[str] = []

    async def open(self, prompt_ids, sampling, **more):
        self.prompts.append(tiny_model().tokenizer.decode(prompt_ids))
        return await super().open(prompt_ids, sampling, **more)


def test_rsa_shows_k_candidates_a_round_and_lets_the_last_vote():
    engine = Noting("it is 4")
    body = {"messages": TALK, "n": 4, "k": 2, "rounds": 2, "seed": 1}
    said = ask("/rsa_generate", body, app_over(engine)).json()
    assert (said["answer"], said["votes"], len(said["candidates"])) == ("4", 4, 4)
    assert [text.count("Attempt ") for text in engine.prompts] == [0] * 4 + [2] * 8
