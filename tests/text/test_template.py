"""The renderer for any template: what it knows, and that it says so where it cannot know."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.errors import ModelError, RenderError
from turnwise.text import Template
from turnwise.text.bodies import find
from turnwise.text.spread import spread

HI = {"role": "user", "content": "hi"}
THOUGHT = {"role": "assistant", "content": "<think>why</think>go"}
# Says at the top how many messages follow.
COUNTING = "{{ messages | length }}{% for m in messages %}{{ m.content + '<|im_end|>' }}{% endfor %}"
# Lists the tools in front of the last message.
WANDERING = (
    "{% for m in messages %}{% if loop.last and tools %}{{ tools | tojson }}{% endif %}"
    "{{ '[' + m.role + ']' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def marks(renderer, messages):
    """Text by (message, body mark), scaffold outside messages as -1."""
    out = renderer.render(messages, add_generation_prompt=True)
    by: dict[tuple[int, int], list[int]] = {}
    for token, owner, body in zip(out.token_ids, out.message_indices, out.body, strict=True):
        by.setdefault((owner, body), []).append(token)
    return {key: renderer.tokenizer.decode(ids) for key, ids in by.items()}


def test_only_templates_that_never_look_back_are_bridged(renderers):
    kinds = [renderers[f"template {k}"] for k in ("on smollm2", "that appends", "that rewrites")]
    assert [k.appends for k in kinds] == [True, True, False]
    assert [k.appends_tools for k in kinds] == [True, True, False]


def test_trimmed_bodies_are_found_without_their_blanks(renderers):
    found = marks(renderers["template that appends"], [{"role": "user", "content": " hi  "}])
    assert found == {(0, 0): "[user]<|im_end|>", (0, 1): "hi", (-1, 0): "[assistant]"}


def test_a_reply_that_the_template_rewrote_is_unknown_and_the_rest_is_known(renderers):
    found = marks(renderers["template that rewrites"], [HI, THOUGHT, {"role": "user", "content": "left"}])
    assert found[(0, 1)] == "hi"
    assert found[(2, 1)] == "left"
    assert "go<|im_end|>" in found[(-1, -1)]
    assert (1, 1) not in found


def test_the_package_s_own_mask_is_empty_as_soon_as_one_token_is_unknown(renderers):
    out = renderers["template that rewrites"].render([HI, THOUGHT, HI])
    assert (out.is_content, out.sampled_mask) == ([], [])
    assert set(out.body) == {-1, 0, 1}


def test_what_a_template_refuses_is_told_in_its_own_words(trained):
    users = "{% if messages[0].role != 'user' %}{{ raise_exception('users only') }}{% endif %}"
    renderer = Template(trained(users + "{% for m in messages %}{{ m.content + '<|im_end|>' }}{% endfor %}"))
    with pytest.raises(RenderError, match=r"roles \['system'\]: users only"):
        renderer.render([{"role": "system", "content": "s"}])


def test_a_template_without_any_end_of_reply_is_refused(trained):
    tokenizer = trained("{% for m in messages %}{{ m.content }}.{% endfor %}")
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match="no token that ends a reply"):
        Template(tokenizer)


def test_a_template_that_drops_replies_is_refused(trained):
    with pytest.raises(ModelError, match="drops the text of replies"):
        Template(trained("{{ messages[0].content }}"))


def test_a_template_that_changes_its_head_is_rendered_whole_instead_of_bridged(trained):
    assert not Template(trained(COUNTING)).appends


def test_arguments_that_are_not_json_reach_the_template_as_text(renderers):
    call = {"id": "a", "function": {"name": "look", "arguments": "{"}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    text = renderers["template that appends"].tokenizer.decode(renderers["template that appends"].render_ids([message]))
    assert text == '[assistant]<tool_call>{"name": "look", "arguments": "{"}</tool_call><|im_end|>'


def test_a_body_is_found_where_it_is_drawn_and_not_where_it_is_repeated():
    def draw(messages):
        return "".join(f"<{m['role']}>{m['content']}</{m['role']}>" for m in messages)

    messages = [{"role": "user", "content": "user"}, {"role": "tool", "content": "</tool>"}]
    assert find(draw, messages, [0, 1], draw(messages)) == {0: (6, 10), 1: (23, 30)}


def test_a_template_that_looks_at_one_body_hides_only_that_one():
    def draw(messages):
        return "".join(f"<{'see below' if m['content'] == 'long' else m['content']}>" for m in messages)

    messages = [{"content": "a"}, {"content": "long"}, {"content": "b"}]
    assert find(draw, messages, [0, 1, 2], draw(messages)) == {0: (1, 2), 2: (15, 16)}


def test_bodies_that_a_template_drops_or_changes_are_not_found():
    def draw(messages):
        return "".join(f"<{m['content'].upper()}>" for m in messages if m["role"] != "system")

    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "B"}]
    assert draw(messages) == "<A><B>"
    assert find(draw, messages, [0, 1, 2], draw(messages)) == {2: (4, 5)}


def test_tools_that_move_with_the_last_message_keep_a_template_from_bridging(trained):
    tokenizer = trained(WANDERING)
    renderer = Template(tokenizer)
    tool = {"type": "function", "function": {"name": "look"}}
    prompt, said = renderer.render_ids([HI], add_generation_prompt=True), tokenizer.encode("go<|im_end|>")
    assert (renderer.appends, renderer.appends_tools) == (True, False)
    assert renderer.bridge_to_next_turn(prompt, said, [HI], tools=[tool]) is None
    assert renderer.bridge_to_next_turn(prompt, said, [HI]).token_ids[: len(prompt) + len(said)] == prompt + said


def test_an_unknown_body_spreads_over_all_that_is_not_known():
    owner, body = spread(10, [0, 4, None, 8], {0: (1, 3), 2: (6, 7)}, [1])
    assert owner.tolist() == [0, 0, 0, 0, -1, -1, 2, -1, -1, -1]
    assert body.tolist() == [0, 1, 1, 0, -1, -1, 1, 0, 0, 0]
    assert (owner.dtype, body.dtype) == (np.int32, np.int8)
