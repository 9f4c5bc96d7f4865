"""`turnwise chat MODEL_OR_URL`: a conversation in the terminal, to try a model."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from turnwise.cli.page import page, show
from turnwise.config import load
from turnwise.config.chat import ChatConfig
from turnwise.errors import ConfigError, TurnwiseError

if TYPE_CHECKING:
    from turnwise.serve.talk import Speaker

USAGE = "turnwise chat MODEL_OR_URL [--key value ...]"
ABOUT = """Talks to a model in this process (smollm2, a folder such as a run's checkpoint, a hub name) or to a server
(http://...: `turnwise serve`, vLLM, anything with OpenAI's chat route). /reset forgets the conversation, /quit or
Ctrl-D ends it, Ctrl-C ends a reply."""
PROMPT = "> "


def run(args: list[str]) -> int:
    """Parse, check, connect, talk."""
    if {"-h", "--help"} & set(args):
        show(page(USAGE, ABOUT, {}, ChatConfig))
        return 0
    if not args or args[0].startswith(("-", "@")):
        raise ConfigError("found nobody to talk to; expected a model or a URL first: `turnwise chat smollm2`")
    config = load(args[1:], ChatConfig)
    return _talk(args[0], config)


def _talk(target: str, config: ChatConfig) -> int:
    """Everything from here on may import torch."""
    from turnwise.serve.talk import speaker

    return asyncio.run(converse(speaker(target, config), config.system, _ask))


async def converse(speaker: Speaker, system: str, ask: Callable[[], str | None]) -> int:
    """Ask and answer until there is nothing more to say; an error ends a reply, not the conversation."""
    opening = [{"role": "system", "content": system}] if system else []
    talk: list[dict[str, Any]] = list(opening)
    try:
        while (line := await asyncio.to_thread(ask)) is not None and line.strip() != "/quit":
            if line.strip() == "/reset":
                talk = list(opening)
                print("(forgotten)")
            elif line.startswith("/"):
                print(f"found {line.split()[0]}; expected /reset or /quit, or something to say")
            elif line.strip():
                await _reply(speaker, talk, line)
    finally:
        await speaker.close()
    return 0


async def _reply(speaker: Speaker, talk: list[dict[str, Any]], line: str) -> None:
    """Print a reply as it comes; one that fails or is interrupted leaves the conversation as it was."""
    said = [*talk, {"role": "user", "content": line}]
    try:
        text = await _printed(speaker.say(said))
    except TurnwiseError as error:
        print(f"turnwise chat: {error}", file=sys.stderr)
        return
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is None or current.uncancel() > 0:
            raise
        print(" (interrupted)")
        return
    talk[:] = [*said, {"role": "assistant", "content": text}]


async def _printed(pieces: AsyncIterator[str]) -> str:
    text = ""
    async for piece in pieces:
        print(piece, end="", flush=True)
        text += piece
    print()
    return text


def _ask() -> str | None:
    """The next line, None at its end."""
    try:
        return input(PROMPT if sys.stdin.isatty() else "")
    except EOFError:
        return None
