"""Each of the nine ways a prompt continues what stood before it, drawn by real renderers; none of them a guess."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.text import Dialogue, Template, explain, reply_ids
from turnwise.text.evidence import same_calls, stripped
from turnwise.types import Attribution, Break, BreakKind, Event, Turn, TurnStop

HI = {"role": "user", "content": "a red ball"}
TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"b":1,   "a": "Tür"}}\n</tool_call>'
# Draws the reasoning of the last reply only.
FORGETFUL = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Writes no newline behind a reply that others follow, and says hello to the newest message.
SLOPPY = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ('!\n' if loop.last else '\n') + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def turn(prompt, said=(), attribution=None, **more: Any) -> Turn:
    arrays = np.array(prompt, np.int32), np.array(said, np.int32)
    zeros = np.zeros(len(said), np.float32)
    return Turn(*arrays, zeros, zeros.astype(np.int32), TurnStop.STOP, attribution, **more)


def prompted(dialogue: Dialogue, said=()) -> Turn:
    return turn(dialogue.prompt_ids, said, dialogue.attribution)


def sample(tokenizer, text: str, end: str = "<|im_end|>") -> list[int]:
    return tokenizer.encode(text + end, add_special_tokens=False)


def spoken(renderer, said, answer=HI, tools=None, bridge=True) -> tuple[Turn, Turn, list]:
    """A first turn with this reply, and the turn after it; without `bridge` the history is drawn again."""
    dialogue = Dialogue(renderer, tools=tools)
    dialogue.add([HI])
    first = prompted(dialogue, said)
    dialogue.reply(said)
    if not bridge:
        dialogue._past = None
    dialogue.add([answer])
    return first, prompted(dialogue), dialogue.messages


def between(renderer, said, **more: Any) -> Break:
    first, second, messages = spoken(renderer, said, **more)
    found = explain(second, [first], messages, renderer)
    assert found is not None
    return found


def test_the_first_turn_continues_nothing(renderers):
    first, _, messages = spoken(renderers["chatml on smollm2"], [5])
    assert explain(first, [], messages, renderers["chatml on smollm2"]) is None


@pytest.mark.parametrize("name", ["chatml on smollm2", "chatml on tag tokens", "template that appends"])
def test_a_bridged_prompt_is_clean_and_nothing_is_decoded(name, renderers, monkeypatch):
    first, second, messages = spoken(renderers[name], list(reply_ids(renderers[name], "go")))
    monkeypatch.setattr("turnwise.text.breaks.decode", None)
    assert explain(second, [first], messages, renderers[name]) == Break(BreakKind.CLEAN, 0, len(first.ids))


def test_a_reply_in_odd_tokens_that_is_drawn_again_is_retokenised(renderers, tokenizers):
    name = "chatml on smollm2"
    odd = [i for c in "go forward" for i in sample(tokenizers[name], c, "")] + sample(tokenizers[name], "")
    found = between(renderers[name], odd, bridge=False)
    assert (found.kind, found.turn) == (BreakKind.RETOKENISED, 0)
    assert found.old.replace("|", "") != found.old and "g|o| |f|o|r" in found.old
    assert "go| forward<" in found.new.replace("<|", "<").replace("|<", "<")


def test_a_template_that_drops_reasoning_is_told_from_one_that_drops_text(renderers, tokenizers):
    name = "template that rewrites"
    found = between(renderers[name], sample(tokenizers[name], "<think>why\n so</think>\ngo"))
    assert found.kind is BreakKind.THINKING_STRIPPED
    assert "<think>why" in found.old and "<think>" not in found.new


def test_reasoning_is_not_all_that_differs(trained):
    careless = Template(trained(FORGETFUL.replace("[-1]", "[-1] | upper")))
    assert between(careless, sample(careless.tokenizer, "<think>why</think>go")).kind is BreakKind.REWRITTEN


def test_qwen3_strips_what_was_thought_before_the_last_question(renderers, tokenizers):
    said = sample(tokenizers["qwen3"], "<think>\nwhy\n</think>\n\ngo")
    found = between(renderers["qwen3"], said, bridge=False)
    assert found.kind is BreakKind.THINKING_STRIPPED
    assert between(renderers["qwen3"], list(reply_ids(renderers["qwen3"], "go"))).kind is BreakKind.THINKING_STRIPPED


def test_an_empty_block_that_the_prompt_opened_with_is_scaffold(trained):
    quiet = Template(
        trained(FORGETFUL.replace("assistant\n' }}{% endif %}", "assistant\n<think>\n\n</think>' }}{% endif %}"))
    )
    assert between(quiet, sample(quiet.tokenizer, "go")).kind is BreakKind.BOUNDARY


@pytest.mark.parametrize("name", ["chatml on plain tags", "chatml on tag tokens", "chatml on smollm2", "qwen3"])
def test_a_tool_call_that_is_written_otherwise_means_the_same(name, renderers, tokenizers):
    said = sample(tokenizers[name], f"I look.\n{CALL}")
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "a door"}
    found = between(renderers[name], said, answer=answer, tools=[TOOL], bridge=False)
    assert found.kind is BreakKind.TOOL_CALL_RENDERED
    assert '{"b":1,   "a"' in found.old and '{"b": 1, "a"' in found.new


def test_a_tool_call_with_other_values_is_rewritten(renderers, tokenizers):
    name = "chatml on plain tags"
    dialogue = Dialogue(renderers[name], tools=[TOOL])
    dialogue.add([HI])
    said = sample(tokenizers[name], CALL)
    first = prompted(dialogue, said)
    call = dialogue.reply(said)["tool_calls"][0]
    call["function"]["arguments"] = '{"b": 2, "a": "Tür"}'
    dialogue._past = None
    dialogue.add([{"role": "tool", "tool_call_id": "call_1", "content": "a door"}])
    found = explain(prompted(dialogue), [first], dialogue.messages, renderers[name])
    assert found is not None and found.kind is BreakKind.REWRITTEN


def test_scaffold_that_depends_on_what_follows_is_a_boundary(trained):
    sloppy = Template(trained(SLOPPY))
    found = between(sloppy, sample(sloppy.tokenizer, "go"), bridge=False)
    assert found.kind is BreakKind.BOUNDARY
    assert "user!" in found.old and "user!" not in found.new.split("<|im_end|>")[0]


def test_another_body_under_the_same_scaffold_is_rewritten(trained):
    sloppy = Template(trained(SLOPPY))
    first, second, messages = spoken(sloppy, sample(sloppy.tokenizer, "go"), bridge=False)
    dialogue = Dialogue(sloppy)
    dialogue.add([{**HI, "content": "a blue ball"}, messages[1], HI])
    assert kind(second, first, messages, sloppy) == "boundary"
    assert kind(prompted(dialogue), first, dialogue.messages, sloppy) == "rewritten"


def test_bodies_that_are_not_told_apart_prove_a_boundary_only_with_the_messages(trained):
    sloppy = Template(trained(SLOPPY))
    first, second, messages = spoken(sloppy, sample(sloppy.tokenizer, "go"), bridge=False)
    known = second.attribution
    assert known is not None
    blind = replace(known, body=np.full(len(known.body), -1, np.int8))
    unlike = [messages[0], {**messages[1], "content": "go on"}]
    assert kind(replace(second, attribution=blind), first, unlike, sloppy) == "rewritten"
    assert kind(replace(second, attribution=None), first, messages, sloppy) == "rewritten"


def kind(second: Turn, first: Turn, messages, renderer, **more: Any) -> str:
    found = explain(second, [first], messages, renderer, **more)
    assert found is not None
    return found.kind.value


def test_a_rewritten_history_is_condensed_only_if_the_agent_says_so(renderers, tokenizers):
    renderer = renderers["chatml on smollm2"]
    first, _, _ = spoken(renderer, list(reply_ids(renderer, "go")))
    dialogue = Dialogue(renderer)
    dialogue.add([{"role": "user", "content": "In short: we went."}])
    short = prompted(dialogue)
    assert kind(short, first, dialogue.messages, renderer) == "rewritten"
    assert kind(short, first, dialogue.messages, renderer, condensed=True) == "condensed"


def test_a_dialogue_is_drawn_anew_on_the_agent_s_word_which_holds_until_the_next_reply(renderers):
    renderer = renderers["chatml on smollm2"]
    dialogue = Dialogue(renderer)
    dialogue.add([HI])
    first = prompted(dialogue, list(reply_ids(renderer, "go")))
    dialogue.reply(first.completion_ids.tolist())
    dialogue.messages[:] = [{"role": "system", "content": "In short: we went."}]
    dialogue.condensed = True
    dialogue.add([HI])
    assert dialogue.prompt_ids.tolist() == renderer.render_ids(dialogue.messages, add_generation_prompt=True)
    assert kind(prompted(dialogue), first, dialogue.messages, renderer, condensed=dialogue.condensed) == "condensed"
    dialogue.reply([5])
    assert not dialogue.condensed


def struck(at: int) -> Event:
    return Event(at, 2, at - 1, "match", np.zeros((1, 1, 1), np.int16), np.zeros(1, np.int32))


def test_an_event_since_the_turn_before_is_a_compaction_and_an_old_one_is_not(renderers):
    renderer = renderers["chatml on smollm2"]
    first, second, messages = spoken(renderer, list(reply_ids(renderer, "go")))
    hit = replace(second, events=(struck(9),))
    assert kind(hit, first, messages, renderer) == "compacted"
    assert kind(hit, replace(first, events=(struck(9),)), messages, renderer) == "clean"


def test_another_agent_s_turn_begins_or_continues_another_conversation(renderers):
    renderer = renderers["chatml on smollm2"]
    first, second, messages = spoken(renderer, list(reply_ids(renderer, "go")))
    critic = replace(second, agent="critic")
    assert kind(critic, first, messages, renderer) == "other_agent"
    stranger = turn([7, 8, 9], agent="critic")
    assert kind(stranger, first, messages, renderer) == "other_agent"


def kinds(*turns: Turn) -> list[str | None]:
    """What each turn after the first is, under a tokenizer of digits."""
    digits = SimpleNamespace(decode=lambda ids, **_: "".join(chr(97 + i) for i in ids))
    renderer: Any = SimpleNamespace(tokenizer=digits, get_stop_token_ids=list)
    found = [explain(t, turns[:n], [], renderer) for n, t in enumerate(turns)]
    return [f"{b.kind.value} {b.turn}" for b in found if b]


def test_interleaved_agents_each_continue_their_own_conversation():
    main, critic = turn([1, 2], [3]), turn([1, 9], [8], agent="critic")
    again, more = turn([1, 2, 3, 4], [5]), turn([1, 9, 8, 7], [6], agent="critic")
    assert kinds(main, critic, again, more) == ["other_agent 0", "clean 0", "clean 1"]


def test_a_turn_that_reads_all_another_agent_read_and_more_than_its_own_is_a_branch_of_it():
    main, critic, again = turn([1, 2], [3]), turn([1, 2, 3, 9], [8], agent="critic"), turn([1, 2, 3, 4], [5])
    critic_again = turn([1, 2, 3, 4, 5, 9], [8], agent="critic")
    assert kinds(main, critic, again, critic_again) == ["other_agent 0", "clean 0", "other_agent 2"]


def test_asking_again_is_clean_and_going_back_silently_is_not():
    first, second = turn([1, 2], [3]), turn([1, 2, 3, 4], [5])
    assert kinds(first, second, turn([1, 2, 3, 4], [6]), turn([1, 2], [7])) == ["clean 0", "clean 1", "clean 0"]
    assert kinds(first, second, turn([1, 2, 3, 6], [7])) == ["clean 0", "rewritten 1"]


@given(st.lists(st.integers(0, 20), min_size=1), st.lists(st.integers(0, 20), min_size=1), st.lists(st.integers(0, 20)))
def test_a_prompt_that_begins_with_everything_so_far_is_clean(prompt, said, more):
    assert kinds(turn(prompt, said), turn([*prompt, *said, *more])) == ["clean 0"]


IDS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@given(st.lists(st.tuples(IDS, IDS, st.sampled_from(["main", "critic"])), max_size=5), st.booleans(), st.data())
def test_every_turn_after_the_first_is_of_one_kind_and_its_break_stands_at_the_first_difference(parts, known, data):
    def written(tokens: int) -> Attribution | None:
        body = data.draw(st.lists(st.integers(-1, 1), min_size=tokens, max_size=tokens))
        owner = np.zeros(tokens, np.int32)
        return (
            Attribution(owner, np.array(body, np.int8), ("user", "assistant", "user"), (None,) * 3) if known else None
        )

    turns = [turn(p, c, written(len(p)), agent=a) for p, c, a in parts]
    digits = SimpleNamespace(decode=lambda ids, **_: "".join("x" if i == 1 else "yx"[i == 0] * 2 for i in ids))
    renderer: Any = SimpleNamespace(tokenizer=digits, get_stop_token_ids=lambda: [3])
    for n, t in enumerate(turns[1:], 1):
        found = explain(t, turns[:n], [], renderer)
        assert found is not None and 0 <= found.turn < n
        old = turns[found.turn].ids[: found.at]
        assert old.tolist() == t.prompt_ids[: found.at].tolist()
        clean = found.kind in (BreakKind.CLEAN, BreakKind.COMPACTED)
        assert clean == (found.old == "" and found.new == "")


THOUGHT = "<a>1<think>\nw\n</think>\n\ngo<e><u>x<e><a><think>v</think>\nby<e>"


@pytest.mark.parametrize(
    ("new", "found"),
    [
        ("<a>1go<e><u>x<e><a>by<e>", "\nw\n\nv"),
        ("<a>1\n\ngo<e><u>x<e><a><think>v</think>\nby<e> and more", "\nw\n"),
        ("<a>1<think>\n\n</think>\n\ngo<e><u>x<e><a>by<e>", "\nw\n\nv"),
        ("<a>1go<e><u>y<e><a>by<e>", None),
        (THOUGHT, None),
    ],
)
def test_what_is_left_without_reasoning_has_to_be_all_that_is_new(new, found):
    assert stripped(THOUGHT, new, ["<e>"]) == found


def test_reasoning_that_nothing_closed_must_be_followed_by_an_end():
    assert stripped("<a><think>lon", "<a><e><u>", ["<e>"]) == "lon"
    assert stripped("<a><think>lon<e>", "<a><e><u>", ["<e>"]) == "lon"
    assert stripped("<a><think>lon", "<a>other", ["<e>"]) is None


def test_only_calls_that_were_made_are_written_one_way():
    made = {'{"a": 1, "b": {"c": "\\u00fc"}}'}
    first = 'x {"z" :1} <t>\n{"name": "f", "arguments": {"b": {"c": "ü"}, "a":1}}\n</t>'
    second = 'x {"z" :1} <t>{"name":"f","arguments":"{\\"a\\":1,\\"b\\":{\\"c\\":\\"\\\\u00fc\\"}}"}</t>'
    assert same_calls(first, made) == same_calls(second, made) != same_calls(first.replace("1", "2"), made)
    assert '{"z" :1}' in same_calls(first, made)


def test_unfinished_and_deep_json_is_left_as_it_is():
    for text in ("{" * 3000, '{"a": ' * 3000, "{x} {"):
        assert same_calls(text, {"{}"}) == text
