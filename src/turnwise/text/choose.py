"""A tokenizer and a name to the renderer that writes exactly what the model's own template writes."""

from __future__ import annotations

from difflib import get_close_matches
from typing import cast

from renderers.base import MODEL_RENDERER_MAP, Renderer, Tokenizer, create_renderer
from renderers.configs import RendererConfig, config_from_name

from turnwise.errors import ConfigError, ModelError
from turnwise.text.apply import attempt, has_template
from turnwise.text.chatml import START, ChatML
from turnwise.text.content import Said
from turnwise.text.probe import ASK, CALLED, LOOK, REASONED, REPLY, SAID, THOUGHT
from turnwise.text.qwen import Qwen3
from turnwise.text.template import Template

Talk = list[Said]
SYSTEM: Said = {"role": "system", "content": "s"}
TALK: Talk = [*ASK, SAID, {"role": "user", "content": " v "}]
PLAIN: list[Talk] = [TALK, [SYSTEM, *TALK], [*ASK, THOUGHT, *ASK]]
MORE: list[tuple[Talk, list[Said] | None, Talk]] = [
    (TALK, [LOOK], TALK),
    ([SYSTEM, *TALK], [LOOK], [SYSTEM, *TALK]),
    ([*ASK, REASONED, *ASK], None, [*ASK, SAID, *ASK]),
    ([*ASK, CALLED], None, [*ASK, SAID]),
    ([*ASK, SAID, REPLY], None, [*ASK, SAID]),
    ([*ASK, CALLED, REPLY, *ASK], None, [*ASK, SAID, REPLY, *ASK]),
]
"""Conversation, tools, and the plainer conversation that a template without the feature makes of it."""


def names() -> list[str]:
    """Every renderer that can be named."""
    return ["auto", "chatml", "template", *sorted(set(MODEL_RENDERER_MAP.values()))]


def choose(tokenizer: Tokenizer, name: str, model: str) -> Renderer:
    """The renderer of that name; "auto" goes by the model's exact name, then by what its template writes."""
    if name not in names():
        near = get_close_matches(name, names(), n=3, cutoff=0.4)
        raise ConfigError(f"found renderer {name!r}; expected one of {', '.join(near or names())}")
    if name == "auto":
        return _auto(tokenizer, model)
    if name == "chatml":
        return ChatML(tokenizer)
    return _template(tokenizer, model) if name == "template" else _named(tokenizer, name)


def _auto(tokenizer: Tokenizer, model: str) -> Renderer:
    if model in MODEL_RENDERER_MAP:
        return _named(tokenizer, MODEL_RENDERER_MAP[model])
    return ChatML(tokenizer) if speaks_chatml(tokenizer) else _template(tokenizer, model)


def _template(tokenizer: Tokenizer, model: str) -> Template:
    if not has_template(tokenizer) or attempt(tokenizer, TALK, None, True) is None:
        raise ModelError(
            f"found no usable chat template in the tokenizer of {model!r}; expected one that renders a user message "
            f"and a reply. Name a renderer: renderer = {', '.join(names()[1:])}"
        )
    return Template(tokenizer)


def _named(tokenizer: Tokenizer, name: str) -> Renderer:
    try:
        if name == "qwen3":
            return Qwen3(tokenizer)
        return create_renderer(tokenizer, cast(RendererConfig, config_from_name(name)))
    except (AssertionError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(
            f"renderer {name!r} does not fit this tokenizer ({type(tokenizer).__name__}): {error}. "
            "Expected the tokenizer of a model of that family; try renderer = auto"
        ) from error


def speaks_chatml(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer's template writes, on probe conversations, what `ChatML` writes.

    It may leave out what it does not know (tools, calls, reasoning), or refuse it; what it writes must be equal.
    """
    opened = attempt(tokenizer, ASK, None, True) if has_template(tokenizer) else None
    if opened is None or START not in opened or len(tokenizer.encode(START, add_special_tokens=False)) != 1:
        return False
    ours = ChatML(tokenizer)
    return all(_same(ours, talk, None) for talk in PLAIN) and all(
        _left_out(tokenizer, talk, tools, plainer) or _same(ours, talk, tools) for talk, tools, plainer in MORE
    )


def _left_out(tokenizer: Tokenizer, talk: Talk, tools: list[Said] | None, plainer: Talk) -> bool:
    return attempt(tokenizer, talk, tools, True) in (None, attempt(tokenizer, plainer, None, True))


def _same(ours: ChatML, talk: Talk, tools: list[Said] | None) -> bool:
    drawn = attempt(ours.tokenizer, talk, tools, True)
    return drawn == "".join(piece.text for piece in ours.pieces(talk, tools, True))
