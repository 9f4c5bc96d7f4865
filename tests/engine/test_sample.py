"""Draws follow the distribution they record, and depend on nothing but logits, seed and count."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from turnwise.engine.sample import NOTHING, check, draw, uniforms
from turnwise.errors import EngineError
from turnwise.types import Sampling

LOGITS = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5]])
OPEN = Sampling()


def one(sampling: Sampling, u: float, allowed: np.ndarray = NOTHING) -> tuple[int, float, list[int]]:
    got = draw(LOGITS, [sampling], [allowed], np.array([u]))
    first = got.each[0]
    return first.id, first.logprob, first.support.tolist()


def test_uniform_numbers_are_even_and_differ_by_seed_and_count() -> None:
    u = uniforms([7] * 10_000, list(range(10_000)))
    assert abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.005 and len(set(u.tolist())) == 10_000
    assert uniforms([1, 2, 1], [0, 0, 1]).tolist() == [uniforms([s], [c])[0] for s, c in ((1, 0), (2, 0), (1, 1))]


def test_frequencies_match_the_softmax_at_temperature() -> None:
    n = 20_000
    got = draw(LOGITS.repeat(n, 1), [Sampling(temperature=0.7)] * n, [NOTHING] * n, uniforms([3] * n, list(range(n))))
    shares = np.bincount([d.id for d in got.each], minlength=5) / n
    np.testing.assert_allclose(shares, (LOGITS[0] / 0.7).softmax(0).numpy(), atol=0.012)


def test_recorded_log_probabilities_are_of_the_distribution_that_was_drawn_from() -> None:
    token, logp, support = one(Sampling(temperature=0.5), 0.3)
    assert np.isclose(logp, float((LOGITS[0] / 0.5).log_softmax(0)[token])) and support == []


def test_top_k_top_p_and_min_p_record_what_was_kept_and_normalise_over_it() -> None:
    assert one(Sampling(top_k=2), 0.0)[2] == [1, 2]
    assert one(Sampling(top_p=0.75), 0.0)[2] == [1, 2]
    assert one(Sampling(min_p=0.3), 0.0)[2] == [1, 2]
    token, logp, _ = one(Sampling(top_k=2), 0.999)
    assert token == 2 and np.isclose(logp, float(LOGITS[0, [1, 2]].log_softmax(0)[1]))


def test_allowed_tokens_are_the_only_ones_drawn() -> None:
    choices = Sampling(choices=((0, 9), (3, 9)))
    assert {one(choices, u, np.array([0, 3], np.int32))[0] for u in np.linspace(0, 0.999, 50)} == {0, 3}


def test_temperature_zero_takes_the_likeliest_and_records_temperature_one() -> None:
    token, logp, support = one(Sampling(temperature=0.0), 0.0)
    assert token == 2 and np.isclose(logp, float(LOGITS[0].log_softmax(0)[2])) and support == []


def test_each_row_is_drawn_under_its_own_parameters() -> None:
    params = [OPEN, Sampling(top_k=1), Sampling(temperature=0.0)]
    got = draw(LOGITS.repeat(3, 1), params, [NOTHING] * 3, np.array([0.01, 0.01, 0.01]))
    assert [d.id for d in got.each] == [0, 2, 2] and [d.support.tolist() for d in got.each] == [[], [2], []]


def test_blocks_of_a_large_vocabulary_draw_what_its_cumulative_distribution_says() -> None:
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(3)) * 2
    u = uniforms([5] * 64, list(range(64)))
    got = [d.id for d in draw(logits, [OPEN] * 64, [NOTHING] * 64, u).each]
    cdf = logits.double().softmax(1).cumsum(1).numpy()
    assert got == [int(np.searchsorted(row, x * row[-1], side="right")) for row, x in zip(cdf, u, strict=True)]


def test_what_cannot_be_drawn_is_not_drawn_at_the_very_end_either() -> None:
    logits = torch.full((1, 600), -torch.inf)
    logits[0, [3, 300]] = 0.0
    last = float(np.nextafter(1.0, 0.0))
    assert [draw(logits, [OPEN], [NOTHING], np.array([u])).each[0].id for u in (0.0, 0.49, 0.51, last)] == [
        3,
        3,
        300,
        300,
    ]


def test_draws_within_rounding_of_a_border_are_counted() -> None:
    border = float(LOGITS[0].softmax(0)[0])
    assert draw(LOGITS, [OPEN], [NOTHING], np.array([border])).near == 1
    assert draw(LOGITS, [OPEN], [NOTHING], np.array([border / 2])).near == 0


def test_biases_shift_the_distribution_of_their_own_row_only() -> None:
    got = draw(LOGITS.repeat(2, 1), [Sampling(logit_bias=((3, 100.0),)), OPEN], [NOTHING] * 2, np.array([0.5, 0.5]))
    assert got.each[0].id == 3 and got.each[1].id == one(OPEN, 0.5)[0]
    assert one(Sampling(logit_bias=((2, -1e9),), temperature=0.0), 0.5)[0] == 1


def test_top_log_probabilities_are_the_likeliest_of_what_could_be_drawn() -> None:
    logp = LOGITS[0].log_softmax(0)
    params = [Sampling(top_logprobs=2), OPEN, Sampling(top_k=1, top_logprobs=3)]
    tops = [d.top for d in draw(LOGITS.repeat(3, 1), params, [NOTHING] * 3, np.array([0.1] * 3)).each]
    assert [i for i, _ in tops[0]] == [2, 1] and tops[1] == () and tops[2] == ((2, 0.0),)
    np.testing.assert_allclose([v for _, v in tops[0]], [float(logp[2]), float(logp[1])], atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (Sampling(temperature=float("nan")), "found temperature nan; expected 0, which is greedy, or"),
        (Sampling(temperature=1e-300), "found temperature 1e-300; expected .* at least 0.001"),
        (Sampling(top_p=0.0), "found top_p 0.0; expected 1e-06 to 1"),
        (Sampling(top_p=1e-300), "found top_p 1e-300; expected 1e-06 to 1"),
        (Sampling(logit_bias=((1, 1e300),)), "expected numbers of at most"),
        (Sampling(top_k=-1), "found top_k -1; expected at least 0"),
        (Sampling(min_p=1.0), "found min_p 1.0; expected at least 0 and below 1"),
        (Sampling(top_logprobs=6), "found top_logprobs 6; expected 0 to 5"),
        (Sampling(stop=("",)), "expected strings of at least one character"),
        (Sampling(logit_bias=((5, 1.0),)), "either way for tokens 0 to 4"),
    ],
)
def test_parameters_that_describe_no_distribution_are_refused(wrong: Sampling, text: str) -> None:
    with pytest.raises(EngineError, match=text):
        check(wrong, 5)
