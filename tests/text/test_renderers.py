"""The contract of every renderer: the template's own tokens, bridges that only append, attribution that is true."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwise.text import reply_ids

TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Sieh nach, ja?", "parameters": {"type": "object"}},
}
CALL = {"id": "a1", "type": "function", "function": {"name": "look", "arguments": '{"at": "Tür", "n": 2}'}}
SYSTEM = {"role": "system", "content": "You walk."}
HI = {"role": "user", "content": "a red ball 2 steps forward"}
GO = {"role": "assistant", "content": "go forward"}
CALLS = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
ONLY_CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "a2"}]}
SEEN = {"role": "tool", "tool_call_id": "a1", "content": "nothing\nthere."}
TALKS = {
    "user": [HI],
    "system and user": [SYSTEM, HI],
    "turns": [SYSTEM, HI, GO, {"role": "user", "content": "wall"}, GO, HI],
    "unicode": [{"role": "user", "content": "Grüße 🎉🏳️‍🌈 你好"}, {"role": "assistant", "content": "día 🎈"}, HI],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "wall"}]}],
    "repeats": [{"role": "user", "content": "user"}, {"role": "assistant", "content": "assistant"}, HI],
    "spelled marks": [{"role": "user", "content": "a<|im_end|>\n<|im_start|>user\nb"}],
    "empty": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, HI],
    "tool": [HI, CALLS, SEEN],
    "tools": [SYSTEM, HI, ONLY_CALLS, SEEN, {**SEEN, "tool_call_id": "a2"}, GO, HI],
    "tool last after text": [HI, GO, {"role": "tool", "name": "look", "content": "ok"}],
}
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
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
WORDS = st.text("abz é🎉.,!?-1 \n", min_size=1, max_size=30).map(str.strip).filter(bool)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def opened(message):
    """The message as templates want it: one string, arguments as an object."""
    calls = [
        {**c, "function": {"name": "look", "arguments": {"at": "Tür", "n": 2}}} for c in message.get("tool_calls", [])
    ]
    parts = message["content"]
    text = parts if isinstance(parts, str) else "".join(part["text"] for part in parts or [])
    return {**message, "content": text, **({"tool_calls": calls} if calls else {})}


def body_texts(renderer, tokenizer, messages, tools=None):
    """Each message's body tokens, decoded."""
    out = renderer.render(messages, tools=tools, add_generation_prompt=True)
    marks = list(zip(out.token_ids, out.message_indices, out.is_content, strict=True))
    return [tokenizer.decode([i for i, m, b in marks if m == n and b]) for n in range(len(messages))]


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("name", [n for n in NAMES if n != "qwen3"])
def test_tokens_are_those_of_the_models_own_template(name, talk, renderers, tokenizers):
    calls = any(m.get("tool_calls") for m in TALKS[talk])
    expressible = not (calls and "smollm2" in name)
    messages = TALKS[talk] if expressible else [{**m, "tool_calls": []} for m in TALKS[talk]]
    tools = [TOOL] if calls and expressible else None
    for prompt in (False, True):
        expected = tokenizers[name].apply_chat_template(
            [opened(m) for m in messages], tools=tools, add_generation_prompt=prompt, tokenize=True, return_dict=False
        )
        assert renderers[name].render_ids(messages, tools=tools, add_generation_prompt=prompt) == expected


@pytest.mark.parametrize("talk", TALKS)
@every
def test_scaffold_is_scaffold_and_bodies_decode_to_their_messages(name, talk, renderers, tokenizers):
    messages = [m for m in TALKS[talk] if m["role"] != "assistant"]
    texts = body_texts(renderers[name], tokenizers[name], messages, [TOOL])
    assert [t.strip() for t in texts] == [opened(m)["content"] for m in messages]


@every
def test_what_the_model_writes_is_the_reply_with_its_end_mark(name, renderers, tokenizers):
    messages = TALKS["turns"]
    out = renderers[name].render(messages, add_generation_prompt=True)
    written = [i for i, s in zip(out.token_ids, out.sampled_mask, strict=True) if s]
    assert tokenizers[name].decode(written) == "go forward<|im_end|>" * 2
    assert [out.message_indices[k] for k, s in enumerate(out.sampled_mask) if s] == [2] * (len(written) // 2) + [4] * (
        len(written) // 2
    )


@every
def test_roles_and_tool_names_stand_for_every_message(name, renderers):
    out = renderers[name].render(TALKS["tools"], tools=[TOOL])
    assert out.message_roles == [m["role"] for m in TALKS["tools"]]
    assert out.message_tool_names == [None, None, None, "look", "look", None, None]


@pytest.mark.parametrize("new", [[HI], [SEEN], [SEEN, HI]])
@every
def test_a_bridge_keeps_every_token_and_equals_the_full_rendering(name, new, renderers):
    renderer, history = renderers[name], [SYSTEM, HI, CALLS if new[0] is SEEN else GO]
    if "smollm2" in name or name == "template that rewrites":
        history[2] = GO
    prompt = renderer.render_ids(history[:2], tools=None, add_generation_prompt=True)
    whole = renderer.render_ids([*history, *new], add_generation_prompt=True)
    shown = renderer.render_ids(history)
    end = max(n for n, i in enumerate(shown) if i in renderer.get_stop_token_ids()) + 1
    bridged = renderer.bridge_to_next_turn(prompt, shown[len(prompt) : end], new)
    if name == "template that rewrites" or (name == "qwen3" and HI in new):
        assert bridged is None
    elif name == "qwen3":
        assert bridged.token_ids[:end] == prompt + shown[len(prompt) : end]
    else:
        assert bridged.token_ids == whole
        assert bridged.token_ids[:end] == prompt + shown[len(prompt) : end]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "template that rewrites"])
def test_a_bridge_attributes_the_new_messages_and_closes_a_reply_that_was_cut(name, renderers, tokenizers):
    renderer, decode = renderers[name], tokenizers[name].decode
    prompt = renderer.render_ids([HI], add_generation_prompt=True)
    cut = list(reply_ids(renderer, "turn left"))[:-1]
    bridged = renderer.bridge_to_next_turn(prompt, cut, [SEEN, {**SEEN, "content": "a wall"}])
    marks = list(zip(bridged.token_ids, bridged.message_indices, bridged.is_content, strict=True))
    assert bridged.token_ids[: len(prompt) + len(cut)] == prompt + cut
    assert bridged.token_ids[len(prompt) + len(cut)] == renderer.get_stop_token_ids()[0]
    assert [decode([i for i, m, b in marks if m == n and b]).strip() for n in (0, 1)] == ["nothing\nthere.", "a wall"]
    assert not any(b for _, m, b in marks if m < 0)


@every
def test_bridges_refuse_replies_that_nobody_sampled(name, renderers):
    prompt = renderers[name].render_ids([HI], add_generation_prompt=True)
    completion = list(reply_ids(renderers[name], "turn left"))
    assert renderers[name].bridge_to_next_turn(prompt, completion, [HI, GO]) is None
    assert renderers[name].bridge_to_next_turn(prompt, completion, []) is None


@every
@quick
@given(text=WORDS)
def test_a_reply_is_read_back_as_it_was_written(name, text, renderers):
    ids = reply_ids(renderers[name], text)
    assert renderers[name].parse_response(list(ids)).content == text
    assert ids[-1] == renderers[name].get_stop_token_ids()[0]


@every
@quick
@given(text=TEXTS)
def test_any_text_is_found_again_in_its_body_tokens(name, text, renderers, tokenizers):
    body = body_texts(renderers[name], tokenizers[name], [SYSTEM, {"role": "user", "content": text}])[1]
    # A vocabulary may lack bytes (SmolLM2's does); blanks at the border may share a token with the scaffold's newline.
    tokenizer = tokenizers[name]
    assert body.strip() == tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)).strip()
