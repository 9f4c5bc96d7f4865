"""The shell of the report: sections in, one self-contained page out; its style and script stand beside this file."""

from __future__ import annotations

from html import escape
from pathlib import Path

STYLE = Path(__file__).with_name("page.css")
SCRIPT = Path(__file__).with_name("page.js")


def document(title: str, header: str, sections: list[tuple[str, str, str]], footer: str) -> str:
    """A whole page; each section is (anchor, heading, content) and has its place in the navigation."""
    links = "".join(f'<a href="#{anchor}">{escape(heading)}</a>' for anchor, heading, _ in sections)
    body = "".join(
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title">{escape(heading)}</h2>{content}</section>'
        for anchor, heading, content in sections
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE.read_text()}</style></head><body>"
        f'<header>{header}<nav aria-label="Sections">{links}</nav></header><main>{body}</main>'
        f"<footer>{footer}</footer><script>{SCRIPT.read_text()}</script></body></html>\n"
    )
