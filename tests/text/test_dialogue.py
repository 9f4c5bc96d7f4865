"""Whole conversations in tokens: nothing sampled is lost, and every token has its writer."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.errors import RenderError
from turnwise.text import Dialogue, reply_ids

TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
SYSTEM = {"role": "system", "content": "You walk."}
HI = {"role": "user", "content": "a red ball"}
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "Tür"}}\n</tool_call>'
NAMES = (
    "chatml on smollm2",
    "chatml on plain tags",
    "chatml on tag tokens",
    "template on smollm2",
    "template that appends",
    "template that rewrites",
    "qwen3",
)
every = pytest.mark.parametrize("name", NAMES)


def sample(tokenizer, text, end="<|im_end|>"):
    return tokenizer.encode(text + end, add_special_tokens=False)


def bodies(dialogue, tokenizer):
    """Each message's body tokens in the latest prompt, decoded."""
    a = dialogue.attribution
    return [
        tokenizer.decode(dialogue.prompt_ids[(a.message == n) & (a.body == 1)].tolist()) for n in range(len(a.roles))
    ]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "qwen3"])
def test_a_conversation_keeps_every_sampled_token_and_attributes_all_of_it(name, renderers, tokenizers):
    dialogue = Dialogue(renderers[name])
    dialogue.add([SYSTEM, HI])
    first, said = dialogue.prompt_ids, list(reply_ids(renderers[name], "go forward"))
    assert dialogue.reply(said) == {"role": "assistant", "content": "go forward"}
    dialogue.add([{"role": "user", "content": "a wall"}])
    assert dialogue.clean
    assert dialogue.prompt_ids[: len(first) + len(said)].tolist() == [*first.tolist(), *said]
    assert bodies(dialogue, tokenizers[name]) == ["You walk.", "a red ball", "go forward<|im_end|>", "a wall"]
    assert dialogue.attribution.roles == ("system", "user", "assistant", "user")


@every
def test_prompts_are_typed_arrays_of_one_length(name, renderers):
    dialogue = Dialogue(renderers[name])
    for text in ("turn left", "pick up"):
        dialogue.add([HI])
        dialogue.reply(reply_ids(renderers[name], text))
    attribution = dialogue.attribution
    assert (dialogue.prompt_ids.dtype, attribution.message.dtype, attribution.body.dtype) == (
        np.int32,
        np.int32,
        np.int8,
    )
    assert len(dialogue.prompt_ids) == len(attribution.message) == len(attribution.body)
    assert len(attribution.roles) == len(attribution.tools) == len(dialogue.messages)


@pytest.mark.parametrize("name", ["chatml on plain tags", "chatml on tag tokens", "qwen3"])
def test_tool_names_reach_bridged_turns(name, renderers, tokenizers):
    dialogue = Dialogue(renderers[name], tools=[TOOL])
    dialogue.add([HI])
    message = dialogue.reply(sample(tokenizers[name], f"<think>\n\n</think>\n\nI look.\n{CALL}"))
    function = {"name": "look", "arguments": '{"at": "Tür"}'}
    assert message["content"] == "I look."
    assert message["tool_calls"] == [{"id": "call_1", "type": "function", "function": function}]
    dialogue.add([{"role": "tool", "tool_call_id": "call_1", "content": "a door"}])
    assert dialogue.clean
    assert dialogue.attribution.tools == (None, None, "look")
    assert bodies(dialogue, tokenizers[name])[2].strip() == "a door"


def test_failed_calls_are_kept_for_an_answer_and_good_ones_count_on(renderers, tokenizers):
    name = "chatml on plain tags"
    dialogue = Dialogue(renderers[name], tools=[TOOL])
    dialogue.add([HI])
    message = dialogue.reply(sample(tokenizers[name], f"{CALL}<tool_call>look(</tool_call>{CALL}"))
    assert [call["id"] for call in message["tool_calls"]] == ["call_1", "call_2"]
    assert message["failed_calls"] == [{"id": "failed_1", "status": "invalid_json", "raw": "look(", "name": None}]
    assert dialogue.messages == [HI, message]


def test_reasoning_stands_apart_from_content(renderers, tokenizers):
    dialogue = Dialogue(renderers["chatml on tag tokens"])
    dialogue.add([HI])
    message = dialogue.reply(sample(tokenizers["chatml on tag tokens"], "<think>\nwhy\n</think>\n\ngo"))
    assert message == {"role": "assistant", "content": "go", "reasoning_content": "why"}


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("template that rewrites", "qwen3")])
def test_a_reply_cut_by_length_is_closed_and_the_next_prompt_is_clean(name, renderers, tokenizers):
    dialogue = Dialogue(renderers[name])
    dialogue.add([HI])
    first, cut = dialogue.prompt_ids.tolist(), sample(tokenizers[name], "turn le", end="")
    assert dialogue.reply(np.array(cut, np.int32))["content"] == "turn le"
    dialogue.add([HI])
    stop = renderers[name].get_stop_token_ids()[0]
    assert dialogue.clean
    assert dialogue.prompt_ids[: len(first) + len(cut) + 1].tolist() == [*first, *cut, stop]
    assert dialogue.attribution.body[len(first) + len(cut)] == 0


def test_a_template_that_forgets_reasoning_breaks_the_prefix_and_says_so(renderers, tokenizers):
    name = "template that rewrites"
    dialogue = Dialogue(renderers[name])
    dialogue.add([HI])
    dialogue.reply(sample(tokenizers[name], "<think>why</think>go"))
    dialogue.add([HI])
    assert not dialogue.clean
    assert "why" not in tokenizers[name].decode(dialogue.prompt_ids.tolist())
    assert bodies(dialogue, tokenizers[name]) == ["a red ball", "go<|im_end|>", "a red ball"]


def test_qwen3_forgets_the_empty_think_block_at_the_next_user_message(renderers, tokenizers):
    dialogue = Dialogue(renderers["qwen3"])
    dialogue.add([HI])
    dialogue.reply(reply_ids(renderers["qwen3"], "go"))
    dialogue.add([HI])
    assert not dialogue.clean
    assert bodies(dialogue, tokenizers["qwen3"]) == ["a red ball", "go<|im_end|>", "a red ball"]


def test_text_sampled_in_odd_tokens_stays_as_it_was_sampled(renderers, tokenizers):
    tokenizer = tokenizers["chatml on smollm2"]
    odd = [i for c in "go forward" for i in tokenizer.encode(c, add_special_tokens=False)] + sample(tokenizer, "")
    dialogue = Dialogue(renderers["chatml on smollm2"])
    dialogue.add([HI])
    first = dialogue.prompt_ids.tolist()
    assert dialogue.reply(odd)["content"] == "go forward"
    dialogue.add([HI])
    assert dialogue.prompt_ids[: len(first) + len(odd)].tolist() == first + odd


def test_replies_that_were_never_sampled_are_rendered(renderers, tokenizers):
    renderer = renderers["chatml on smollm2"]
    history = [HI, {"role": "assistant", "content": "go"}, HI]
    dialogue = Dialogue(renderer)
    dialogue.add(history)
    assert dialogue.prompt_ids.tolist() == renderer.render_ids(history, add_generation_prompt=True)
    assert bodies(dialogue, tokenizers["chatml on smollm2"]) == ["a red ball", "go<|im_end|>", "a red ball"]


def test_messages_may_come_in_two_parts_before_a_reply(renderers):
    renderer = renderers["chatml on plain tags"]
    dialogue = Dialogue(renderer)
    dialogue.add([SYSTEM])
    dialogue.add([HI])
    assert dialogue.clean
    assert dialogue.prompt_ids.tolist() == renderer.render_ids([SYSTEM, HI], add_generation_prompt=True)


def test_answers_may_come_one_by_one_after_a_reply(renderers):
    renderer = renderers["chatml on plain tags"]
    apart, together = Dialogue(renderer), Dialogue(renderer)
    for dialogue in (apart, together):
        dialogue.add([HI])
        dialogue.reply(reply_ids(renderer, "go"))
    apart.add([SYSTEM])
    apart.add([HI])
    together.add([SYSTEM, HI])
    assert apart.clean
    assert apart.prompt_ids.tolist() == together.prompt_ids.tolist()
    assert apart.attribution.message.tolist() == together.attribution.message.tolist()


def test_half_characters_in_arguments_stay_escaped(renderers, tokenizers):
    name = "chatml on plain tags"
    dialogue = Dialogue(renderers[name], tools=[TOOL])
    dialogue.add([HI])
    message = dialogue.reply(
        sample(tokenizers[name], '<tool_call>{"name": "f", "arguments": {"a": "\\ud83d"}}</tool_call>')
    )
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": "\\ud83d"}'


def test_nothing_to_read_is_an_error(renderers):
    with pytest.raises(RenderError, match="at least one"):
        Dialogue(renderers["chatml on plain tags"]).add([])


def test_a_reply_that_runs_into_the_prompt_is_an_error(renderers):
    with pytest.raises(RenderError, match="cannot be sampled"):
        reply_ids(renderers["chatml on smollm2"], "\n\ngo")


class Refusing:
    """A family that breaks on whatever it is given."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def render(self, *_, **__):
        raise ValueError("one call only")

    def parse_response(self, *_, **__):
        raise KeyError("arguments")


def test_what_a_family_s_renderer_raises_is_a_rendererror_that_says_so(renderers):
    dialogue = Dialogue(Refusing(renderers["qwen3"]))
    with pytest.raises(RenderError, match=r"the renderer refuses messages with roles \['user'\]: one call only"):
        dialogue.add([{"role": "user", "content": "hi"}])


def test_a_reply_that_a_family_s_parser_breaks_on_is_text_and_a_failed_call(renderers, tokenizers):
    dialogue = Dialogue(renderers["qwen3"])
    dialogue.add([{"role": "user", "content": "hi"}])
    dialogue.renderer = Refusing(dialogue.renderer)
    message = dialogue.reply(tokenizers["qwen3"].encode("odd"))
    failed = {"id": "failed_1", "status": "malformed_structure", "raw": "odd", "name": None}
    assert message == {"role": "assistant", "content": "odd", "failed_calls": [failed]}


@pytest.mark.parametrize("name", ['{"a": 1}', "[]", "3", "null", '""'])
def test_a_call_whose_name_is_no_name_is_a_failed_call(renderers, tokenizers, name):
    dialogue = Dialogue(renderers["qwen3"])
    dialogue.add([{"role": "user", "content": "hi"}])
    text = f'<tool_call>\n{{"name": {name}, "arguments": {{}}}}\n</tool_call>'
    message = dialogue.reply(tokenizers["qwen3"].encode(text))
    assert "tool_calls" not in message and len(message["failed_calls"]) == 1


def test_a_notice_among_sampled_tokens_is_no_part_of_the_reply(renderers, tokenizers):
    dialogue = Dialogue(renderers["chatml on smollm2"])
    dialogue.add([HI])
    ids, told = sample(tokenizers["chatml on smollm2"], "go forward"), tokenizers["chatml on smollm2"].encode("9 left")
    both = [*ids[:1], *told, *ids[1:]]
    injected = np.array([False] + [True] * len(told) + [False] * (len(ids) - 1))
    assert dialogue.reply(both, injected) == {"role": "assistant", "content": "go forward"}
    dialogue.add([HI])
    assert dialogue.clean
