"""A config to a condenser, and what siblings share."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from turnwise.condense import Shared, condensation
from turnwise.condense.drop import Drop
from turnwise.condense.endpoint import EndpointWriter
from turnwise.condense.keywords import Keywords
from turnwise.condense.model import Model
from turnwise.config.condense import CondenseConfig
from turnwise.errors import ModelError
from turnwise.testing import FakeEngine, byte_tokenizer
from turnwise.text import ChatML
from turnwise.text.pieces import tokenizer_of

CHATML = ChatML(byte_tokenizer())
SERVER = {"source": "endpoint", "url": "http://127.0.0.1:1/v1", "name": "m"}


def config(**given: Any) -> CondenseConfig:
    return CondenseConfig.model_validate({"max_context_tokens": 10, **given})


def plan(**given: Any):
    return condensation(config(**given), CHATML, FakeEngine([]), CHATML)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"type": "keywords"}, Keywords),
        ({"type": "drop"}, Drop),
        ({"type": "model"}, Model),
        ({"type": "model", "model": {"source": "start"}}, Model),
        ({"type": "model", "model": SERVER}, EndpointWriter),
    ],
)
def test_every_type_has_its_condenser_which_counts_tokens(given, kind):
    found = plan(**given)
    assert type(found.condenser) is kind and list(found.condenser.starts("ab")) == list(found.starts("ab")) == [0, 1]


def test_an_endpoint_counts_with_its_own_tokenizer_where_that_is_named(tmp_path):
    tokenizer_of(CHATML).save_pretrained(tmp_path)
    found = plan(type="model", model={**SERVER, "tokenizer": str(tmp_path)})
    assert list(found.condenser.starts("ab")) == [0, 1]
    with pytest.raises(ModelError, match=r"found rollout.condense.model.tokenizer '/nowhere'"):
        plan(type="model", model={**SERVER, "tokenizer": "/nowhere"})


@pytest.mark.parametrize(
    ("given", "sampled", "masked", "shared"),
    [
        ({"type": "model"}, True, (), False),
        ({"type": "model", "share": "group"}, True, (), True),
        ({"type": "model", "train_summaries": False}, True, ("summary",), True),
        ({"type": "model", "model": {"source": "start"}}, False, ("summary",), True),
        ({"type": "keywords", "share": "episode"}, None, ("summary",), False),
    ],
)
def test_only_summaries_of_the_policy_train_and_then_siblings_write_their_own(given, sampled, masked, shared):
    found, group = plan(**given), Shared()
    assert getattr(found.condenser, "sampled", None) is sampled and found.masked == masked
    histories = [found.history(group, 1, seed) for seed in (2, 3)]
    assert (histories[0].shared is histories[1].shared is group) is shared
    assert (histories[0].seed("text") == histories[1].seed("text")) is shared
    assert histories[0].seed("text") != histories[0].seed("other")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_context_tokens": 0}, "found no trigger"),
        ({"skip": ["("]}, "cannot be read"),
        ({"query": "["}, "cannot be read"),
        ({"chunk": {"boundary": "*"}}, "cannot be read"),
        ({"roles": ["system"]}, "roles"),
        ({"model": {"source": "load"}}, "without name"),
        ({"model": {"source": "endpoint", "url": "x", "name": "m"}}, "expected the address"),
        ({"model": {"temperature": 0.0}}, "sampled tokens"),
    ],
)
def test_what_cannot_work_is_refused_when_the_config_is_read(given, words):
    with pytest.raises(ValidationError, match=words):
        config(**given)
