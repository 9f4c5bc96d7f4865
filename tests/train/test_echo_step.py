"""Echo through an optimizer step: beside every loss its gradient is that of a plain sum, however trees are laid out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from echoed import reads
from played import played, tight
from turnwise.config.echo import EchoConfig
from turnwise.config.loss import CispoConfig, CustomConfig, DppoConfig, GrpoConfig, GspoConfig
from turnwise.config.run import AdvantageConfig, TrainConfig
from turnwise.errors import RunError
from turnwise.losses import Result, Tokens, choose
from turnwise.model import Policy, logp
from turnwise.rows import Row, Seen
from turnwise.runs import tokens
from turnwise.testing import tiny_model
from turnwise.train import Silence, Tally, Trainer, batch, judge
from turnwise.train.echo import echo_loss
from turnwise.train.judge import Judges
from turnwise.train.numbers import numbers
from turnwise.train.step import score_row
from turnwise.trees import advantages
from turnwise.trees.echo import Rule
from turnwise.types import Echo, Trajectory

Grads = dict[str, Tensor]


def mine(logp_E: Tensor, tokens: Tokens) -> Result:
    """A loss of a user's own."""
    return Result(((logp_E - tokens.sampler_logp_E - tokens.advantage_E).square() * tokens.weight_E).sum(), {})


LOSSES = [
    DppoConfig(kl_tau=0.1),
    GrpoConfig(),
    GspoConfig(low=0.5, high=0.9),
    CispoConfig(),
    CustomConfig(import_path=f"{__file__}:mine"),
    GrpoConfig(entropy=0.1),
]
every = pytest.mark.parametrize("loss", LOSSES, ids=lambda c: f"{c.type}-{c.entropy}")
ON = {"user": {"alpha": 0.5}, "tool": {"alpha": -0.25, "tool_names": ["look"]}}


def episodes() -> list[Trajectory]:
    """3 groups of 2 siblings: a prompt, a look, an answer, a reply, another answer; the last has no spread."""
    rng, found = np.random.default_rng(0), []
    for n in range(6):
        group, sibling = divmod(n, 2)
        go, see, end = (rng.integers(3, 259, k + sibling).tolist() for k in (2, 5, 3))
        ask = [60 + group, 61, 62]
        said = [("user", ask), ("assistant", go), ("tool:look", see), ("assistant", end), ("tool:run", see[:2])]
        reward = float(sibling) if group < 2 else 1.0
        first = reads(said[0], wrote=go, logprobs=rng.uniform(-6, -4, len(go)).tolist(), temperature=0.7)
        allowed = [sorted({t, 9, 10, 11}) if k % 2 else [] for k, t in enumerate(end)]
        second = reads(*said[:3], wrote=end, logprobs=rng.uniform(-6, -4, len(end)).tolist(), support=tight(*allowed))
        third = reads(*said, wrote=go, logprobs=rng.uniform(-6, -4, len(go)).tolist())
        found.append(played(first, second, third, group=group, sibling=sibling, reward=reward))
    return found


def rows_of(echo: Any = ON, order: Sequence[int] = range(6), **config: Any) -> list[Row]:
    played_ = episodes()
    rule = None if echo is None else Rule.of(EchoConfig.model_validate(echo))
    return batch(played_, advantages(played_, AdvantageConfig()), order, TrainConfig(**config), "token", rule)[0]


def gradients(policy: Policy, work: Callable[[], Any]) -> Grads:
    """What `work` has accumulated in each weight's gradient after its last backward."""
    found: Grads = {}

    def note(name: str) -> Callable[[Tensor], None]:
        return lambda weight: found.update({name: weight.grad.clone()})  # type: ignore[union-attr]

    hooks = [w.register_post_accumulate_grad_hook(note(name)) for name, w in policy.model.named_parameters()]
    work()
    for hook in hooks:
        hook.remove()
    return found


def stepped(loss: Any, rows: Sequence[Row], tally: Tally | None = None) -> Grads:
    trainer = Trainer(tiny_model(), TrainConfig(max_grad_norm=1e9), choose(loss), loss)
    return gradients(trainer.policy, lambda: trainer.update(rows, 0, tally or Tally()))


def alone(rows: Sequence[Row], echo: bool) -> list[Row]:
    """The rows with only one of the two terms."""
    none = np.zeros(0, np.intp)
    found = [replace(r, entries=r.entries.take(none)) if echo else replace(r, echo=Echo.none()) for r in rows]
    return [r for r in found if len(r.entries) or len(r.echo)]


def plain(policy: Policy) -> Tensor:
    """The echo of `ON` by the unpacked model, turn by turn: the mean of -alpha logp over the tokens, each once."""
    total, seen = torch.zeros(()), set()
    for episode in episodes():
        for t in episode.turns:
            a = t.attribution
            assert a is not None
            logits = policy.model(torch.from_numpy(t.prompt_ids).long()[None]).logits[0].log_softmax(-1)
            for i in np.flatnonzero(a.body == 1).tolist():
                alpha = {("user", None): 0.5, ("tool", "look"): -0.25}.get(
                    (a.roles[a.message[i]], a.tools[a.message[i]])
                )
                place = (episode.group, *t.prompt_ids[: i + 1].tolist())
                if alpha is not None and place not in seen:
                    seen.add(place)
                    total = total - alpha * logits[i - 1, int(t.prompt_ids[i])]
    return total / len(seen)


def assert_equal(a: Grads, b: Grads) -> None:
    """To 1e-5 of the longest gradient, in the worst weight."""
    length = max(float(x.norm()) for x in a.values())
    assert a.keys() == b.keys() and length > 1e-3
    assert max(float((a[name] - b[name]).norm()) for name in a) < 1e-5 * length


@every
def test_the_gradient_is_that_of_the_loss_alone_plus_that_of_the_plain_cross_entropy(loss: Any) -> None:
    both, without = stepped(loss, rows_of()), stepped(loss, rows_of(None))
    policy = tiny_model()
    echo = gradients(policy, lambda: plain(policy).backward())
    assert_equal(both, {name: without[name] + echo[name] for name in without})


@every
def test_a_run_without_echo_has_the_very_bits_of_its_loss_alone(loss: Any) -> None:
    (row,), policy, tally = rows_of(None), tiny_model(), Tally()

    def by_hand() -> None:
        scores = score_row(policy, row)
        result = choose(loss)(scores.logp_E, numbers(row.entries, 0.0, policy.device))
        total = result.loss - loss.entropy * scores.entropy_E.sum() if loss.entropy else result.loss
        (total / len(row.entries)).backward()

    found, hand = stepped(loss, [row], tally), gradients(policy, by_hand)
    assert all(torch.equal(found[name], hand[name]) for name in hand)
    metrics = tally.metrics()
    assert metrics["loss/total"] == metrics["loss/rl"] and not [name for name in metrics if "echo" in name]


def test_a_batch_without_echo_says_nothing_of_it() -> None:
    played_ = episodes()
    rows, counts = batch(played_, advantages(played_, AdvantageConfig()), range(6), TrainConfig())
    assert not [name for name in counts if "echo" in name]
    assert [len(r.echo) for r in rows] == [0]


@pytest.mark.parametrize("normalization", ["global", "all_tokens", "echo_tokens", "ratio", "none"])
@pytest.mark.parametrize("share", ["trajectory", "group"])
@pytest.mark.parametrize("row_tokens", [40, 64, 4096])
def test_layout_does_not_matter(normalization: str, share: Any, row_tokens: int) -> None:
    echo = {**ON, "normalization": normalization}
    rows = rows_of(echo, [4, 1, 0, 5, 3, 2], share=share, row_tokens=row_tokens)
    assert_equal(stepped(GrpoConfig(), rows), stepped(GrpoConfig(), rows_of(echo)))


def test_the_layouts_compared_do_differ() -> None:
    layouts = [rows_of(row_tokens=t, share=s) for t in (64, 4096) for s in ("trajectory", "group")]
    assert [(len(rows), sum(map(len, rows))) for rows in layouts] == [(3, 150), (3, 135), (1, 150), (1, 135)]


def test_chunks_of_the_vocabulary_s_projection_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stepped(GrpoConfig(), rows_of())
    for size in (1, 7):
        monkeypatch.setattr(logp, "CHUNK_NUMBERS", size * 259)
        assert_equal(stepped(GrpoConfig(), rows_of()), whole)


def test_a_position_is_projected_once_for_all_entries_and_echo_that_it_predicts() -> None:
    projected: list[int] = []

    def head(hidden_NW: Tensor) -> Tensor:
        projected.append(len(hidden_NW))
        return hidden_NW

    hidden = torch.randn(6, 9)
    read = logp.Read(torch.tensor([1, 2, 4]), torch.tensor([3, 7, 5]))
    scores = logp.score(hidden, head, torch.tensor([2, 2, 5]), torch.tensor([7, 8, 0]), torch.ones(3), read=read)
    assert projected == [4]
    torch.testing.assert_close(scores.echo_logp_M, hidden.log_softmax(1)[read.source_M, read.target_M])
    assert float(scores.echo_logp_M[1]) == pytest.approx(float(scores.logp_E[0]))


@pytest.mark.parametrize("normalization", ["all_tokens", "echo_tokens", "ratio", "none"])
def test_per_rollout_normalizations_are_means_over_rollouts_of_what_the_config_says(normalization: str) -> None:
    rows = rows_of({**ON, "normalization": normalization})
    total = sum(len(r.echo) for r in rows)
    found = dict.fromkeys(range(6), 0.0)
    for e in (r.echo for r in rows):
        for who in range(6):
            of = e.trajectory == who
            found[who] += float((e.weight[of] / e.alpha[of]).sum()) / total
    played_, echoed = episodes(), [8, 6, 8, 6, 8, 6]
    for who, s in enumerate(echoed):
        last = played_[who].turns[-1]
        t, r = len(last.prompt_ids) + len(last.completion_ids), played_[who].sampled_tokens
        factor = {"all_tokens": 1 / t, "echo_tokens": 1 / s, "ratio": r / s, "none": 1.0}[normalization]
        assert found[who] == pytest.approx(s * factor / 6, rel=1e-5)


def test_a_rollout_without_echo_tokens_adds_nothing_and_still_counts_as_a_rollout() -> None:
    two = [played(reads(("user", [5, 6]), wrote=[7])), played(reads(("system", [5]), wrote=[7]), group=1)]
    rule = Rule.of(EchoConfig.model_validate({"user": {}, "normalization": "echo_tokens"}))
    rows, counts = batch(two, np.full(2, np.nan, np.float32), [0, 1], TrainConfig(), "token", rule)
    assert rows[0].echo.weight.tolist() == [0.5, 0.5] and counts["echo/tokens/user"] == 2


def test_groups_without_spread_have_echo_and_no_policy_gradient() -> None:
    (row,) = rows_of()
    assert {int(who) // 2 for who in row.entries.trajectory} == {0, 1}
    assert {int(who) // 2 for who in row.echo.trajectory} == {0, 1, 2}


def test_a_row_with_echo_alone_is_trained_and_judged() -> None:
    (row,), tally = rows_of(order=[4, 5]), Tally()
    assert len(row.entries) == 0
    (judged,) = judge([row], Judges(start=tiny_model(), reference=tiny_model()))
    assert judged.entries.ref_logp is not None and len(judged.entries.ref_logp) == 0
    found = stepped(GrpoConfig(tis_cap=2.0, reference_kl=0.1), [judged], tally)
    assert max(float(g.norm()) for g in found.values()) > 1e-3
    metrics = tally.metrics()
    assert metrics["loss/total"] == metrics["loss/echo"] and "loss/rl" not in metrics


def test_echo_on_the_assistant_replaces_rl_also_with_alpha_zero() -> None:
    rows = rows_of({"assistant": {"alpha": 0.0}})
    assert sum(len(r.entries) for r in rows) == 0 and sum(len(r.echo) for r in rows) > 0
    assert all(float(g.norm()) == 0.0 for g in stepped(GrpoConfig(), rows).values())
    half = rows_of({"assistant": {"alpha": 0.0}, "filter": {"import_path": f"{__file__}:first_turn"}})
    assert {int(n) for r in half for n in r.entries.turn} == {1, 2}
    assert {int(n) for r in half for n in r.echo.turn} == {0}


def first_turn(trajectory: Trajectory) -> list[np.ndarray]:
    """Completions of the first turn."""
    masks = [np.zeros(len(t.prompt_ids) + len(t.completion_ids), np.bool_) for t in trajectory.turns]
    masks[0][len(trajectory.turns[0].prompt_ids) :] = True
    return masks


def test_the_account_adds_up_for_both_terms() -> None:
    played_ = episodes()
    for config in (ON, {"assistant": {}}, {"user": {}, "assistant": {"alpha": 0.0}, "on_error": "keep"}):
        played_[0].error = "gone"
        rule = Rule.of(EchoConfig.model_validate(config))
        advantage = advantages(played_, AdvantageConfig())
        rows, counts = batch(played_, advantage, range(6), TrainConfig(row_tokens=10), "token", rule)
        lost = sum(n for name, n in counts.items() if name.startswith("dropped/"))
        assert counts["tokens_eligible"] == counts["tokens_trained"] + lost
        roles = sum(counts[f"echo/tokens/{role}"] for role in ("user", "tool", "assistant"))
        assert roles == sum(len(r.echo) for r in rows)
        assert counts["echo/dropped/over_budget"] > 0
        assert counts["echo/tokens/look"] == counts["echo/tokens/tool"]
    assert counts["dropped/echoed"] > 0


def test_the_two_losses_and_the_nll_of_each_role_and_tool_are_means_over_their_own_tokens() -> None:
    tally, rows = Tally(), rows_of({"user": {"alpha": 0.5}, "tool": {"alpha": 2.0}}, row_tokens=40)
    stepped(GrpoConfig(), rows, tally)
    found, policy = tally.metrics(), tiny_model()
    with torch.no_grad():
        logps = [score_row(policy, r, r.echo).echo_logp_M.numpy() for r in rows]
    nll, e = -np.concatenate(logps), Echo.join([r.echo for r in rows])
    for name, mask in {
        "user": e.role == "user",
        "tool": e.role == "tool",
        "look": e.tool == "look",
        "run": e.tool == "run",
    }.items():
        assert found[f"echo/nll/{name}"] == pytest.approx(float(nll[mask].mean()), rel=1e-5)
    assert found["loss/echo"] == pytest.approx(float((e.alpha * nll).mean()), rel=1e-5)
    assert found["loss/total"] == pytest.approx(found["loss/rl"] + found["loss/echo"], rel=1e-9)


def test_a_tool_that_is_called_like_a_role_has_metrics_of_its_own() -> None:
    (row,) = batch(
        [played(reads(("user", [5]), ("tool:user", [6]), wrote=[7]))],
        np.full(1, np.nan, np.float32),
        [0],
        TrainConfig(),
        "token",
        Rule.of(EchoConfig.model_validate({"user": {}, "tool": {}})),
    )[0]
    assert {name: m.tolist() for name, m in row.echo.named().items()} == {
        "user": [True, False],
        "tool": [False, True],
        "tool:user": [False, True],
    }


def test_gradient_flows_through_every_echo_token_whatever_the_sampler_said_of_its_neighbours() -> None:
    """Neither a mask that stops the gradient nor a placeholder log-probability may come between."""
    rows = rows_of({"user": {}, "tool": {}})
    for row in rows:
        row.entries.sampler_logp[:] = 0.0  # a trust region drops nearly everything now
    logps = torch.zeros(sum(len(r.echo) for r in rows), requires_grad=True)
    echo_loss(Echo.join([r.echo for r in rows]), logps, Tally()).backward()
    assert logps.grad is not None and bool((logps.grad == -1.0).all())
    tally = Tally()
    with_echo, echo = stepped(DppoConfig(kl_tau=0.0), rows, tally), stepped(DppoConfig(), alone(rows, True))
    rl = stepped(DppoConfig(kl_tau=0.0), alone(rows, False))
    assert tally.metrics()["policy/masked_low"] > 0.3
    assert_equal(with_echo, {name: rl[name] + echo[name] for name in rl})


def test_echo_does_not_dilute_rl_nor_rl_echo() -> None:
    one, many = Tally(), Tally()
    stepped(GrpoConfig(), rows_of({"tool": {"tool_names": ["run"]}}), one)
    stepped(GrpoConfig(), rows_of({"tool": {}, "user": {}, "system": {}}), many)
    assert one.metrics()["loss/rl"] == pytest.approx(many.metrics()["loss/rl"], rel=1e-5)


def test_silence_ends_the_run_after_three_batches_and_says_which_rule_took_the_tokens() -> None:
    silence = Silence(Rule.of(EchoConfig.model_validate({"tool": {"tool_names": ["run"]}})))
    silent = {"echo/tokens/tool": 0.0, "echo/dropped/tool_name": 7.0, "echo/dropped/role_off": 20.0}
    heard = [silence.heed(m) for m in (silent, silent, {"echo/tokens/tool": 1.0}, silent, silent)]
    assert heard == [False, False, True, False, False]
    expected = r"echo on tool selected no token in 3 batches running: 60 tokens by role_off .*; 21 tokens by tool_name"
    with pytest.raises(RunError, match=expected):
        silence.heed(silent)


def test_silence_without_any_token_to_drop_says_so() -> None:
    silence = Silence(Rule.of(EchoConfig.model_validate({"tool": {}})))
    assert [silence.heed({}), silence.heed({})] == [False, False]
    with pytest.raises(RunError, match="no message but the policy's own was read"):
        silence.heed({})


def test_the_token_export_shows_every_echo_token_with_its_weights_and_log_probability_and_no_ratio() -> None:
    rows, seen = rows_of({**ON, "normalization": "echo_tokens"}, row_tokens=64), list[Seen]()
    trainer = Trainer(tiny_model(), TrainConfig(), choose(GrpoConfig()))
    trainer.update(rows, 0, Tally(), seen=seen)
    found = tokens.table(1, dict(enumerate(episodes())), seen).to_pydict()
    shown = [n for n, alpha in enumerate(found["echo_alpha"]) if alpha is not None]
    e = Echo.join([r.echo for r in rows])
    logps = np.concatenate([s.echo_logp for s in seen if s.echo_logp is not None])
    for name, values in {"echo_alpha": e.alpha, "echo_weight": e.weight, "plain_logp": logps}.items():
        assert sorted(found[name][n] for n in shown) == pytest.approx(sorted(values.tolist()))
    assert {found["ratio"][n] for n in shown} == {None}
    assert sorted({found["trajectory"][n] for n in shown}) == sorted(set(e.trajectory.tolist()))
