"""How each family continues a conversation, as a table: `turnwise doctor --templates`.

Each situation is played as an episode plays it: the reply is sampled token by token as the family writes it, then the
next messages are read. A cell says whether they were read behind the tokens that stand, and if not, what broke.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from renderers.base import Renderer

from turnwise.text.dialogue import Dialogue
from turnwise.text.families import FAMILIES, Make
from turnwise.text.given import given
from turnwise.text.reply import said_ids
from turnwise.types import BreakKind, Message, Tool, Turn

LOOK: Tool = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
}
ASK: Message = {"role": "user", "content": "What is there?"}
AGAIN: Message = {"role": "user", "content": "And now?"}
SAID: Message = {"role": "assistant", "content": "A wall."}
THOUGHT: Message = {"role": "assistant", "content": "A wall.", "reasoning_content": "I see stones."}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "door"}'}}
CALLED: Message = {"role": "assistant", "content": "", "tool_calls": [CALL]}
REASONED: Message = {**CALLED, "reasoning_content": "I should look."}
SEEN: Message = {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "a door"}

Talk = Sequence[tuple[Message, Message]]
"""A reply and what is said to it, in order."""
SITUATIONS: Mapping[str, tuple[Talk, list[Tool] | None]] = {
    "plain turns": ([(SAID, AGAIN), (SAID, AGAIN)], None),
    "reasoning": ([(THOUGHT, AGAIN), (THOUGHT, AGAIN)], None),
    "tool message last": ([(CALLED, SEEN)], [LOOK]),
    "reasoning, then a tool message": ([(REASONED, SEEN)], [LOOK]),
    "tool calls, then a question": ([(CALLED, SEEN), (SAID, AGAIN)], [LOOK]),
}


def rows(make: Make) -> list[dict[str, str]]:
    """One line a family: what it is, whether it is append-only, and a cell a situation."""
    return [_row(name, family.about, family.make(make())) for name, family in FAMILIES.items()]


def _row(name: str, about: str, renderer: Renderer) -> dict[str, str]:
    cells = {title: cell(renderer, talk, tools) for title, (talk, tools) in SITUATIONS.items()}
    return {"template": name, "what": about, "append-only": "yes" if steady(renderer) else "no", **cells}


def steady(renderer: Renderer) -> bool:
    """Whether the renderer is append-only in every situation that it can write."""
    return all(appends(renderer, talk, tools) for talk, tools in SITUATIONS.values())


def cell(renderer: Renderer, talk: Talk, tools: list[Tool] | None) -> str:
    """ "bridged" where every turn was read behind what stood, "drawn again" where tokens came out the same without a
    bridge; else the kinds of break, in the order they came."""
    dialogue, turns, bridged = Dialogue(renderer, tools), list[Turn](), True
    dialogue.add([ASK])
    for reply, said in talk:
        ids = said_ids(renderer, dialogue.messages, reply, tools)
        turns.append(given(dialogue, ids, turns))
        bridged &= _bridges(renderer, turns[-1], said, tools)
        dialogue.reply(ids)
        dialogue.add([said])
    turns.append(given(dialogue, (), turns))
    kinds = dict.fromkeys(t.prefix.kind.value for t in turns if t.prefix and t.prefix.kind is not BreakKind.CLEAN)
    return ", ".join(kinds) or ("bridged" if bridged else "drawn again")


def _bridges(renderer: Renderer, turn: Turn, said: Message, tools: list[Tool] | None) -> bool:
    new: Any = [said]
    listed: Any = tools
    prompt, ids = turn.prompt_ids.tolist(), turn.completion_ids.tolist()
    return renderer.bridge_to_next_turn(prompt, ids, new, tools=listed) is not None


def appends(renderer: Renderer, talk: Talk, tools: list[Tool] | None) -> bool:
    """Whether drawing a longer conversation anew leaves what stood as it was."""
    listed: Any = tools
    messages = [ASK, *(message for pair in talk for message in pair)]
    asked = [n for n in range(1, len(messages) + 1) if messages[n - 1]["role"] != "assistant"]
    texts: Any = [[*messages[:n]] for n in asked]
    drawn = [renderer.render_ids(text, tools=listed, add_generation_prompt=True) for text in texts]
    ends = [
        said_ids(renderer, text, messages[n], tools) for n, text in zip(asked, texts, strict=True) if n < len(messages)
    ]
    stands = [[*ids, *said] for ids, said in zip(drawn, ends, strict=False)]
    return all(later[: len(ids)] == ids for ids, later in zip(stands, drawn[1:], strict=True))


def document(found: Sequence[Mapping[str, str]]) -> str:
    """The table, as Markdown."""
    names = list(found[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    shown = [[f"`{row['template']}`", *(row[name] for name in names[1:])] for row in found]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in shown)]) + "\n"
