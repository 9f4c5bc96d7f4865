"""`[rollout.compaction]`: what it may say, and what is said where it does not fit."""

from __future__ import annotations

import pytest

from turnwise.config import RunConfig, dump, load
from turnwise.errors import ConfigError

HERE = "--rollout.compaction."


def told(words: str) -> RunConfig:
    """A config of flags, `.` standing for the section: ".every 8"."""
    return load([HERE + w[1:] if w.startswith(".") and w[1:2].isalpha() else w for w in words.split()])


WRONG = {
    ".trigger budget": "found trigger budget without max_kv_tokens; expected max_kv_tokens: the trigger goes by it",
    ".trigger turns": "found trigger turns without protect_turns",
    ".trigger segments .window 9": "found trigger segments without every",
    ".trigger turns .protect-turns 2 .window 40": "found window 40 with trigger turns; expected trigger budget or "
    "segments, or leave window out: turns does not read it",
    ".trigger turns .protect-turns 2 .max-kv-tokens 90": "found max_kv_tokens 90 with trigger turns; expected trigger "
    "budget",
    ".trigger turns .protect-turns 2 .protect-tokens 4": "found protect_tokens 4 with trigger turns",
    ".max-kv-tokens 90 .protect-turns 1": "found protect_turns 1 with trigger budget; expected trigger turns",
    ".max-kv-tokens 90 .every 8": "found every 8 with trigger budget; expected trigger segments",
    ".triger budget": "unknown flag; did you mean --rollout.compaction.trigger?",
    ".trigger bugdet": "found 'bugdet'; expected 'budget', 'turns' or 'segments'; did you mean 'budget'?",
    ".max-kv-tokens 0": "found '0'; expected at least 1",
    ".max-kv-tokens 90 .protect user": "found protect 'user'; expected system, first_user, or a number of tokens",
    ".max-kv-tokens 90 .protect 90": "found protect 90 and protect_tokens 0 of max_kv_tokens 90; expected fewer",
    ".max-kv-tokens 90 .protect-tokens 95": "found protect_tokens 95 of max_kv_tokens 90; expected fewer",
    ".max-kv-tokens 90 .window 91": "found window 91 over max_kv_tokens 90; expected at most that",
    ".max-kv-tokens 90 .ratio 1.0": "found '1.0'; expected below 1.0",
    ".max-kv-tokens 90 .ratio 0": "found '0'; expected above 0.0",
    ".max-kv-tokens 90 .method delete .ratio 0.5": "found ratio 0.5 with method delete; expected method match or "
    "evict, or leave ratio out: delete does not read it",
    ".max-kv-tokens 90 .carry-ratio 0.5": "found carry_ratio 0.5 with method match; expected method delete",
    ".max-kv-tokens 90 .method delete .carry-tail 9": "found carry_tail 9 with method delete; expected method "
    "delete_reread",
    ".max-kv-tokens 90 .method evict .ridge 0.1": "found ridge 0.1 with method evict; expected method match",
    ".max-kv-tokens 90 .bias true": "found rollout.compaction.bias true; expected false",
    ".max-kv-tokens 90 .uniform false": "found rollout.compaction.uniform false; expected true",
    ".max-kv-tokens 90 .source keys": "found rollout.compaction.source 'keys'; expected one of own, suffix, context: "
    "the trainer has no other queries. Evaluation may use it: set eval.compaction.source",
    ".max-kv-tokens 90 .method delete_reread --loss.type gspo": "found loss.type gspo with rollout.compaction.method "
    "delete_reread within replies; expected trigger turns",
    "--eval.cache both": "found eval.cache both without compaction; expected [rollout.compaction] or same",
    "--eval.cache whole --eval.compaction.max-kv-tokens 90": "found eval.cache whole with [eval.compaction]; expected "
    "same or both",
    ".max-kv-tokens 90 .notice.template at:{used:9}": "found template 'at:{used:9}'; expected names alone",
    ".max-kv-tokens 90 .notice.template at:{left}": "found ['left'] in template; expected only used, total and",
    ".max-kv-tokens 90 .notice.template {left}": "found '{left}'; expected JSON where a flag's value begins",
    ".max-kv-tokens 90 .gradient full": "found 'full'; expected 'map', 'exact' or 'none'",
}


@pytest.mark.parametrize(("words", "message"), WRONG.items(), ids=WRONG)
def test_what_does_not_fit_is_named_with_what_was_expected(words: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        told(words)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        ".max-kv-tokens 90 .protect 40 .gradient exact --eval.cache both",
        ".trigger turns .protect-turns 0 .method delete .carry-ratio 0.2 --eval.cache whole",
        ".trigger segments .every 8 .window 9 .method delete_reread .carry-tail 3 .notice.every 4",
        "--eval.compaction.max-kv-tokens 90 --eval.compaction.source keys --eval.compaction.bias true",
        ".trigger turns .protect-turns 1 .method delete_reread --loss.type gspo",
    ],
)
def test_what_fits_is_read_and_comes_back_from_its_own_dump(words: str, tmp_path) -> None:
    config = told(words)
    path = tmp_path / "run.toml"
    path.write_text(dump(config))
    assert load(["@", str(path)]) == config


def test_a_section_of_a_file_is_all_a_user_writes(tmp_path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[rollout.compaction]\nmax_kv_tokens = 150\nprotect = "first_user"\n')
    found = load(["@", str(path), "--rollout.compaction.ratio", "0.5"]).rollout.compaction
    assert found is not None
    assert (found.trigger, found.max_kv_tokens, found.protect, found.ratio) == ("budget", 150, "first_user", 0.5)
    assert load(["@", str(path)]).eval.cache == "same"
