"""`turnwise doctor --templates`: how each known template continues a conversation, as docs/templates.md shows it."""

from __future__ import annotations


def run() -> int:
    """Print the table."""
    from turnwise.model.tiny import train_tokenizer
    from turnwise.text.families import MARKS
    from turnwise.text.table import document, rows

    print(document(rows(lambda: train_tokenizer([], vocab=259, marks=MARKS))), end="")
    return 0
