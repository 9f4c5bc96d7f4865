"""Messages to tokens and back: rendering with attribution, bridging to the next turn, parsing replies."""

from __future__ import annotations

from turnwise.text.breaks import explain
from turnwise.text.chatml import ChatML
from turnwise.text.choose import choose
from turnwise.text.dialogue import Dialogue
from turnwise.text.reply import reply_ids
from turnwise.text.template import Template

__all__ = ["ChatML", "Dialogue", "Template", "choose", "explain", "reply_ids"]
