"""Which renderer a tokenizer gets."""

from __future__ import annotations

import pytest

from turnwise.errors import ConfigError, ModelError
from turnwise.text import ChatML, Template, choose
from turnwise.text.qwen import Qwen3

# ChatML for plain talk, but tools and their answers are written another way.
FOREIGN_TOOLS = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|im_start|>user\n<r>' + m.content + '</r>' }}{% else %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("chatml on smollm2", ChatML),
        ("chatml on plain tags", ChatML),
        ("chatml on tag tokens", ChatML),
        ("template that appends", Template),
        ("template that rewrites", Template),
    ],
)
def test_auto_goes_by_what_the_template_writes(name, kind, tokenizers):
    assert type(choose(tokenizers[name], "auto", "some/folder")) is kind


def test_auto_takes_the_known_class_for_an_exact_model_name(tokenizers):
    assert type(choose(tokenizers["qwen3"], "auto", "Qwen/Qwen3-0.6B")) is Qwen3


def test_a_template_that_writes_tools_another_way_is_not_chatml(trained):
    assert type(choose(trained(FOREIGN_TOOLS), "auto", "x")) is Template


def test_a_template_that_opens_reasoning_in_the_prompt_is_not_chatml(trained):
    template = FOREIGN_TOOLS.replace("assistant\n' }}", "assistant\n<think>\n' }}")
    renderer = choose(trained(template), "auto", "x")
    ids = renderer.tokenizer.encode("why</think>go<|im_end|>", add_special_tokens=False)
    assert type(renderer) is Template
    assert renderer.parse_response(ids).reasoning_content == "why"


@pytest.mark.parametrize(("name", "kind"), [("chatml", ChatML), ("template", Template)])
def test_our_own_renderers_can_be_named(name, kind, tokenizers):
    assert type(choose(tokenizers["chatml on smollm2"], name, "x")) is kind


def test_a_known_class_can_be_named(tokenizers):
    assert type(choose(tokenizers["qwen3"], "qwen3", "a/folder")) is Qwen3


def test_an_unknown_name_is_answered_with_the_nearest(tokenizers):
    with pytest.raises(ConfigError, match=r"found renderer 'qwen-3'; expected one of .*qwen3"):
        choose(tokenizers["qwen3"], "qwen-3", "x")


@pytest.mark.parametrize("name", ["default", "custom"])
def test_the_packages_opaque_renderer_cannot_be_named(name, tokenizers):
    with pytest.raises(ConfigError, match="found renderer"):
        choose(tokenizers["chatml on smollm2"], name, "x")


@pytest.mark.parametrize("template", [None, "{{ raise_exception('no') }}"])
def test_no_usable_template_is_an_error_that_says_how_to_name_a_renderer(template, trained):
    with pytest.raises(ModelError, match=r"of 'my/model'.*Name a renderer: renderer = chatml, template, "):
        choose(trained(template), "auto", "my/model")


def test_a_tokenizer_object_without_a_template_needs_a_name(tokenizers):
    with pytest.raises(ModelError, match="Name a renderer"):
        choose(tokenizers["qwen3"], "auto", "a/folder")


def test_a_class_that_does_not_fit_the_tokenizer_is_an_error(tokenizers):
    with pytest.raises(ModelError, match="renderer 'qwen3' does not fit"):
        choose(tokenizers["chatml on plain tags"], "qwen3", "x")
