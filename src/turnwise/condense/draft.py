"""A history laid open: what of each message stays, and which pieces of it may be condensed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turnwise.condense.blocks import Blocks
from turnwise.condense.eligible import KEPT, border, replies_in, transcript, turns
from turnwise.text.content import text_of
from turnwise.types import Message


@dataclass(slots=True, eq=False)
class Chunk:
    """A piece that may be condensed; `shown` is the block in its place, None while the piece itself stands there."""

    text: str
    shown: str | None = None

    @property
    def now(self) -> str:
        """What stands in the message; a block keeps the piece's last blanks, which part it from the next."""
        return self.text if self.shown is None else self.shown + self.text[len(self.text.rstrip()) :]


@dataclass(slots=True)
class Draft:
    """Messages and the parts of their text. A `whole` draft is several messages that give way to one user message."""

    messages: list[Message]
    parts: list[str | Chunk] = field(default_factory=list)
    whole: bool = False

    @property
    def chunks(self) -> list[Chunk]:
        return [part for part in self.parts if isinstance(part, Chunk)]

    def drawn(self) -> list[Message]:
        """The messages as they are now; those in which nothing was condensed are untouched."""
        if all(chunk.shown is None for chunk in self.chunks):
            return self.messages
        text = "".join(part.now if isinstance(part, Chunk) else part for part in self.parts)
        return [{"role": "user", "content": text}] if self.whole else [{**self.messages[0], "content": text}]


def by_text(
    messages: Sequence[Message], protect: int, roles: Sequence[str], blocks: Blocks, cut: Callable[[str], list[str]]
) -> list[Draft]:
    """Eligible messages of the roles cut into pieces; blocks that stand there stay."""
    end = border(messages, protect)
    return [
        Draft([message], _parts(text_of(message), blocks, cut) if n < end and message.get("role") in roles else [])
        for n, message in enumerate(messages)
    ]


def by_turns(
    messages: Sequence[Message], protect: int, size: int, blocks: Blocks, cut: Callable[[str], list[str]]
) -> list[Draft]:
    """Eligible turns, `size` of them a piece (0: all), and before them the first input, each message a piece."""
    end = border(messages, protect)
    first = next(iter(replies_in(messages[:end])), end)
    told = [Draft([m], _parts(text_of(m), blocks, cut) if m.get("role") not in KEPT else []) for m in messages[:first]]
    played = turns(messages[:end])
    step = size or len(played) or 1
    groups = [[m for turn in played[n : n + step] for m in turn] for n in range(0, len(played), step)]
    rewritten = [Draft(g, [] if _blocked(g, blocks) else [Chunk(transcript(g))], whole=True) for g in groups]
    return [*told, *rewritten, *(Draft([message]) for message in messages[end:])]


def _blocked(messages: Sequence[Message], blocks: Blocks) -> bool:
    """Whether a block stands in any of the messages."""
    return any(blocks.within(text_of(message)) for message in messages)


def _parts(text: str, blocks: Blocks, cut: Callable[[str], list[str]]) -> list[str | Chunk]:
    """Blocks and pieces in turn; nothing of a message that was gone through before."""
    parts: list[str | Chunk] = []
    if text in blocks.settled:
        return parts
    for stretch, ours in blocks.split(text):
        parts += [stretch] if ours else [Chunk(piece) for piece in cut(stretch)]
    return parts


def assembled(drafts: Sequence[Draft]) -> list[Message]:
    """All messages; one that stands for whole turns joins the user message before it, since many templates want roles
    to alternate."""
    found: list[Message] = []
    for draft in drafts:
        drawn = draft.drawn()
        joins = draft.whole and drawn is not draft.messages and found and found[-1].get("role") == "user"
        if joins:
            before = found.pop()
            drawn = [{**before, "content": f"{text_of(before)}\n{drawn[0]['content']}"}]
        found += drawn
    return found
