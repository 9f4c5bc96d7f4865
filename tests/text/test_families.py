"""What each family's template draws, character for character, and how its conversations continue."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.errors import RenderError
from turnwise.model.tiny import train_tokenizer
from turnwise.text import Dialogue
from turnwise.text.breaks import tokenizer_of
from turnwise.text.families import APPENDS, FAMILIES, FORGETS, MARKS
from turnwise.text.reply import said_ids
from turnwise.text.table import CALLED, LOOK, SEEN, SITUATIONS, cell, document, rows

DOCS = Path(__file__).parents[2] / "docs" / "templates.md"
ASK = {"role": "user", "content": "hi"}
MORE = {"role": "user", "content": "more"}
WALL = '<tool_call>\n{"name": "look", "arguments": {"at": "door"}}\n</tool_call>'
QWEN_TOOLS = (
    "<|im_start|>system\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    '{"type": "function", "function": {"name": "look", "description": "Look.", '
    '"parameters": {"type": "object", "properties": {}}}}\n</tools>\n\n'
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML "
    'tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
)
LLAMA_HEAD = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
)


def bytes_with_marks():
    return train_tokenizer([], 259, MARKS)


@pytest.fixture
def family(tokenizers, smollm2):
    """A family's renderer on the tokenizer of its models, where one can be had."""

    real = {"qwen3": tokenizers["qwen3"], "chatml": smollm2}
    return lambda name: FAMILIES[name].make(real[name] if name in real else bytes_with_marks())


def drawn(renderer, messages, tools=None, prompt=True):
    return tokenizer_of(renderer).decode(renderer.render_ids(messages, tools=tools, add_generation_prompt=prompt))


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def qwen(*replies):
    """The user's question and what stands behind it."""
    return "<|im_start|>user\nhi<|im_end|>\n" + "".join(replies)


LAST = {
    "plain": (said("go"), "<think>\n\n</think>\n\ngo"),
    "reasoning": (said("go", reasoning_content="why"), "<think>\nwhy\n</think>\n\ngo"),
    "reasoning in the text": (said("<think>\nwhy\n</think>\n\ngo"), "<think>\nwhy\n</think>\n\ngo"),
    "two closing tags": (said("<think>a</think>b</think>c"), "<think>\na\n</think>\n\nb</think>c"),
    "two opening tags": (said("<think>a<think>b</think>c"), "<think>\na<think>b\n</think>\n\nc"),
    "an orphan closing tag": (said("go</think>!"), "<think>\n\n</think>\n\ngo</think>!"),
    "an orphan opening tag": (said("<think>go"), "<think>\n\n</think>\n\n<think>go"),
}
EARLIER = {
    "plain": "go",
    "reasoning": "go",
    "reasoning in the text": "go",
    "two closing tags": "b</think>c",
    "two opening tags": "c",
    "an orphan closing tag": "go</think>!",
    "an orphan opening tag": "<think>go",
}


@pytest.mark.parametrize("name", LAST)
def test_qwen3_keeps_every_word_of_a_reply_and_drops_only_earlier_reasoning(family, name):
    reply, expected = LAST[name]
    assert drawn(family("qwen3"), [ASK, reply], prompt=False) == qwen(f"<|im_start|>assistant\n{expected}<|im_end|>\n")
    earlier = qwen(f"<|im_start|>assistant\n{EARLIER[name]}<|im_end|>\n", "<|im_start|>user\nmore<|im_end|>\n")
    assert drawn(family("qwen3"), [ASK, reply, MORE]) == earlier + "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("written", "content", "reasoning"),
    [
        ("go</think>!", "go</think>!", None),
        ("<think>\na\n</think>\n\nb</think>c", "b</think>c", "a"),
        ("<think>a<think>b</think>c", "c", "ab"),
        ("</think>go", "</think>go", None),
    ],
)
def test_qwen3_reads_think_tags_of_a_reply_as_it_writes_them(family, written, content, reasoning):
    renderer = family("qwen3")
    dialogue = Dialogue(renderer)
    dialogue.add([ASK])
    message = dialogue.reply(renderer._tokenizer.encode(written + "<|im_end|>"))
    assert (message["content"], message.get("reasoning_content")) == (content, reasoning)


def test_qwen3_takes_a_tool_message_last(family):
    expected = (
        QWEN_TOOLS
        + qwen(f"<|im_start|>assistant\n{WALL}<|im_end|>\n")
        + "<|im_start|>user\n<tool_response>\na door\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert drawn(family("qwen3"), [ASK, CALLED, SEEN], [LOOK]) == expected


def test_llama_3_trims_bodies_quotes_what_tools_say_and_writes_one_call_as_json(family):
    renderer = family("llama-3")
    call = '{"name": "look", "parameters": {"at": "door"}}'
    expected = LLAMA_HEAD + "".join(
        f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}"
        for role, text in [
            ("user", "hi<|eot_id|>"),
            ("assistant", f"{call}<|eot_id|>"),
            ("ipython", '"a door"<|eot_id|>'),
            ("assistant", ""),
        ]
    )
    assert drawn(renderer, [{**ASK, "content": " hi "}, CALLED, SEEN]) == expected
    two = {**CALLED, "tool_calls": [*CALLED["tool_calls"]] * 2}
    with pytest.raises(RenderError, match="single tool call"):
        said_ids(renderer, [ASK], two)


def test_chatml_writes_reasoning_and_calls_in_tags_and_keeps_them(family):
    renderer = family("chatml")
    system = "" if renderer.default_system is None else f"<|im_start|>system\n{renderer.default_system}<|im_end|>\n"
    expected = (
        system
        + "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\nwhy\n</think>\n\n"
        + f"{WALL}<|im_end|>\n<|im_start|>tool\na door<|im_end|>\n<|im_start|>assistant\ngo</think>!<|im_end|>\n"
        + "<|im_start|>assistant\n"
    )
    talk = [ASK, {**CALLED, "reasoning_content": "why"}, SEEN, said("go</think>!")]
    assert drawn(renderer, talk) == expected


@pytest.mark.parametrize(("name", "earlier"), [("appends", "<think>why</think>go"), ("forgets", "go")])
def test_a_template_of_no_family_is_drawn_as_it_is_written(family, name, earlier):
    assert FAMILIES[name].template == {"appends": APPENDS, "forgets": FORGETS}[name]
    talk = [ASK, said("go", reasoning_content="why"), MORE]
    expected = qwen(f"<|im_start|>assistant\n{earlier}<|im_end|>\n", "<|im_start|>user\nmore<|im_end|>\n")
    assert drawn(family(name), talk) == expected + "<|im_start|>assistant\n"


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_real_vocabulary_continues_as_the_table_says(family, name, situation):
    known = {row["template"]: row for row in rows(bytes_with_marks)}
    assert cell(family(name), *SITUATIONS[situation]) == known[name][situation]


def test_append_only_templates_have_no_break_and_the_others_have_one():
    for row in rows(bytes_with_marks):
        cells = {row[situation] for situation in SITUATIONS}
        assert (cells == {"bridged"}) == (row["append-only"] == "yes")


def test_the_table_in_the_docs_is_the_one_that_is_measured():
    assert document(rows(bytes_with_marks)) in DOCS.read_text()
