"""What ChatML writes that its template has no words for, and where the default system message comes from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.errors import ModelError, RenderError
from turnwise.text import ChatML

HI = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "description": "é"}}
SECTION = (
    'Tools, one JSON object a line:\n{"type": "function", "function": {"name": "look", "description": "é"}}\n'
    'To use one, write:\n<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'
)


def drawn(renderer, messages, tools=None):
    return renderer.tokenizer.decode(renderer.render_ids(messages, tools=tools))


def test_the_default_system_message_is_read_off_the_models_template(renderers):
    said = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert renderers["chatml on smollm2"].default_system == said
    assert renderers["chatml on plain tags"].default_system is None


def test_a_default_system_message_is_scaffold_of_nobody(renderers):
    out = renderers["chatml on smollm2"].render([HI])
    first = out.message_indices.index(0)
    assert set(out.message_indices[:first]) == {-1}
    assert not any(out.is_content[:first])


def test_tools_stand_behind_the_system_text_and_are_scaffold(renderers):
    renderer = renderers["chatml on plain tags"]
    messages = [{"role": "system", "content": "Walk."}, HI]
    out = renderer.render(messages, tools=[TOOL])
    body = [i for i, m, b in zip(out.token_ids, out.message_indices, out.is_content, strict=True) if b and m == 0]
    assert drawn(renderer, messages, [TOOL]).startswith(
        f"<|im_start|>system\nWalk.\n\n{SECTION}<|im_end|>\n<|im_start|>user"
    )
    assert renderer.tokenizer.decode(body) == "Walk."


def test_tools_without_a_system_message_make_their_own_block(renderers):
    text = drawn(renderers["chatml on plain tags"], [HI], [TOOL])
    assert text == f"<|im_start|>system\n{SECTION}<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"


def test_reasoning_calls_and_failed_calls_are_written_in_order(renderers):
    message = {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "why",
        "tool_calls": [{"function": {"name": "look", "arguments": {"at": "ü"}}}],
        "failed_calls": [{"status": "unclosed_block", "raw": "{", "name": None}],
    }
    assert drawn(renderers["chatml on plain tags"], [message]) == (
        "<|im_start|>assistant\n<think>\nwhy\n</think>\n\nI look.\n"
        '<tool_call>\n{"name": "look", "arguments": {"at": "ü"}}\n</tool_call>\n<tool_call>\n{<|im_end|>\n'
    )


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text("aé🎉 \n<"), st.lists, max_leaves=4)
MESSAGES = st.fixed_dictionaries(
    {"content": st.text("ab \né", max_size=9).map(str.strip)},
    optional={
        "reasoning_content": st.text("ab \né", max_size=9).map(str.strip),
        "calls": st.lists(st.tuples(st.text("abé", min_size=1), st.dictionaries(st.text("ab"), VALUES)), max_size=3),
    },
)


@settings(max_examples=60, deadline=None)
@given(said=MESSAGES)
def test_any_reply_is_read_back_as_it_was_written(said, renderers):
    renderer = renderers["chatml on plain tags"]
    calls = [{"function": {"name": n, "arguments": a}} for n, a in said.get("calls", [])]
    message = {"role": "assistant", **said, "tool_calls": calls}
    out = renderer.render([message])
    parsed = renderer.parse_response([i for i, s in zip(out.token_ids, out.sampled_mask, strict=True) if s])
    assert (parsed.content, parsed.reasoning_content) == (said["content"], said.get("reasoning_content"))
    assert [(c.name, c.arguments) for c in parsed.tool_calls] == said.get("calls", [])


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"content": "hi"}, "role None"),
        ({"role": "user", "content": 3}, "type int"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "only text is read"),
        ({"role": "user", "content": "\ud83d"}, "half a character"),
        ({"role": "user", "content": ["a", {"type": "text"}]}, "expected {'type': 'text'"),
        ({"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}, "without a name"),
    ],
)
def test_messages_that_cannot_become_tokens_are_refused(message, found, renderers):
    with pytest.raises(RenderError, match=found):
        renderers["chatml on plain tags"].render([message])


def test_no_messages_are_refused(renderers):
    with pytest.raises(RenderError, match="no messages"):
        renderers["chatml on plain tags"].render([])


class Bare:
    """Spells everything letter by letter, and knows no offsets."""

    unk_token_id = eos_token_id = None

    def encode(self, text, add_special_tokens=False):
        return [ord(c) for c in text]


class Whole(Bare):
    """Knows every text as one token."""

    def encode(self, text, add_special_tokens=False):
        return [hash(text)]

    def __call__(self, text):
        return {"input_ids": self.encode(text)}


def test_a_tokenizer_without_offsets_is_refused():
    with pytest.raises(ModelError, match=r"found a tokenizer \(Whole\) without character offsets"):
        ChatML(Whole()).render([HI])


def test_a_tokenizer_without_chatmls_marks_is_refused():
    with pytest.raises(ModelError, match="10 tokens; expected one"):
        ChatML(Bare())
