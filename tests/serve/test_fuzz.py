"""Whatever is sent to the token routes: an error in its shape, never a 500, and the next request is served."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import app_over, asks, direct

GOOD = {"path": "/inference/v1/generate", "json": {"token_ids": [5, 6], "sampling_params": {"max_tokens": 2}}}
HUGE = "9" * 5000
RAW = [
    "",
    "{",
    "null",
    "[]",
    '"text"',
    "[" * 50_000,
    '{"token_ids": NaN}',
    '{"token_ids": [NaN]}',
    '{"token_ids": [Infinity]}',
    '{"token_ids": []}',
    '{"token_ids": [-1]}',
    '{"token_ids": [1.5]}',
    '{"token_ids": ["1"]}',
    '{"token_ids": [true]}',
    '{"token_ids": [259]}',
    '{"token_ids": [2147483647]}',
    '{"token_ids": [2147483648]}',
    f'{{"token_ids": [{HUGE}]}}',
    f'{{"token_ids": [1], "sampling_params": {{"seed": {HUGE}}}}}',
    f'{{"token_ids": [1], "sampling_params": {{"max_tokens": {HUGE}}}}}',
    '{"token_ids": [1], "sampling_params": {"temperature": NaN}}',
    '{"token_ids": [1], "sampling_params": {"temperature": -1}}',
    '{"token_ids": [1], "sampling_params": {"temperature": 1e-300}}',
    '{"token_ids": [1], "sampling_params": {"temperature": 1e400}}',
    '{"token_ids": [1], "sampling_params": {"top_p": 1e-300}}',
    '{"token_ids": [1], "sampling_params": {"top_p": 0}}',
    '{"token_ids": [1], "sampling_params": {"top_k": -2}}',
    '{"token_ids": [1], "sampling_params": {"logit_bias": {"x": 1}}}',
    '{"token_ids": [1], "sampling_params": {"logit_bias": {"9999": 1}}}',
    '{"token_ids": [1], "sampling_params": {"logit_bias": {"1": 1e300}}}',
    '{"token_ids": [1], "sampling_params": {"stop": ""}}',
    '{"token_ids": [1], "sampling_params": {"n": 0}}',
    '{"token_ids": [1], "sampling_params": {"n": 1000000}}',
    '{"token_ids": [1], "sampling_params": {"logprobs": 100000}}',
    '{"token_ids": [1], "sampling_params": {"nonsense": 1}}',
    '{"token_ids": [1], "model": "\\ud800"}',
    '{"token_ids": [1], "request_id": "\\u0000"}',
    '{"token_ids": [1], "features": {}}',
]
NUMBERS = st.one_of(st.integers(), st.floats(), st.just(None), st.booleans(), st.text(max_size=4))
PARAMS = st.dictionaries(
    st.sampled_from(
        ["temperature", "top_p", "top_k", "min_p", "seed", "n", "max_tokens", "logprobs", "stop", "stop_token_ids"]
    ),
    st.one_of(NUMBERS, st.lists(NUMBERS, max_size=3)),
    max_size=4,
)


@pytest.mark.parametrize("raw", RAW, ids=[f"{n}" for n in range(len(RAW))])
def test_a_senseless_body_is_refused_in_the_documented_shape(raw):
    wrong = {"path": GOOD["path"], "content": raw, "headers": {"Content-Type": "application/json"}}
    said, after = asks(app_over(), wrong, GOOD)
    assert said.status_code in (400, 404, 413, 422)
    assert {"message", "found", "expected", "mend"} <= said.json()["error"].keys()
    assert after.status_code == 200


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(ids=st.lists(st.one_of(st.integers(-2, 300), NUMBERS), max_size=5), params=PARAMS, stream=st.booleans())
def test_no_body_makes_the_server_fail_or_hang(ids, params, stream):
    """A server that ran senseless parameters would break the batch in which the good request is."""
    raw = json.dumps({"token_ids": ids, "sampling_params": {"max_tokens": 3, **params}, "stream": stream})

    async def both():
        async with direct(app_over(max_tokens=3)) as http:
            async with asyncio.timeout(20):
                good = asyncio.create_task(http.post(GOOD["path"], json=GOOD["json"]))
                said = await http.post(GOOD["path"], content=raw, headers={"Content-Type": "application/json"})
                return said, await good

    said, good = asyncio.run(both())
    assert said.status_code in (200, 400, 413, 422), said.text
    assert good.status_code == 200


def test_a_body_over_the_limit_is_refused_before_it_is_read():
    app = app_over(max_body_bytes=1000)
    long = {"path": GOOD["path"], "json": {"token_ids": [1] * 1000}}
    said, after = asks(app, long, GOOD)
    assert (said.status_code, after.status_code) == (413, 200)


def test_a_prompt_over_the_limit_of_server_or_model_is_too_long():
    for limits in ({"max_prompt_tokens": 100}, {}):
        said, after = asks(app_over(**limits), {"path": GOOD["path"], "json": {"token_ids": [1] * 5000}}, GOOD)
        assert (said.status_code, after.status_code) == (413, 200)


def test_a_route_that_is_not_there_and_a_method_that_is_not_say_so():
    said = asks(app_over(), {"path": "/nowhere"}, {"path": "/pause", "method": "GET"})
    assert [(s.status_code, s.json()["error"]["found"]) for s in said] == [(404, "POST /nowhere"), (405, "GET /pause")]


ODD = [
    {"temperature": 1e-300},
    {"temperature": -1.0},
    {"top_p": 1e-300},
    {"top_p": 2.0},
    {"min_p": 1.0},
    {"top_k": -1},
    {"top_logprobs": 10**9},
    {"stop": [""]},
    {"logit_bias": [[999, 1.0]]},
    {"logit_bias": [[9, 1e300]]},
    {"choices": [[]]},
    {"max_tokens": 0},
    {"temperature": "hot"},
    {"nonsense": 1},
]


@pytest.mark.parametrize("odd", ODD, ids=[f"{n}" for n in range(len(ODD))])
def test_senseless_sampling_over_the_engine_routes_harms_nobody_else(odd):
    body = {"session": "a", "prompt_ids": [5, 6], "sampling": {"max_tokens": 3, **odd}, "seed": 1}
    step = {"session": "a", "sequence": 0, "new_ids": [7]}
    said = asks(app_over(), {"path": "/engine/open", "json": body}, {"path": "/engine/step", "json": step}, GOOD)
    assert (400 in {s.status_code for s in said[:2]}) or said[0].status_code == 422
    assert said[2].status_code == 200
