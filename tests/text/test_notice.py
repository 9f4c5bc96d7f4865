"""A notice in the middle of a reply: the tokens that a conversation has there, whatever the renderer."""

from __future__ import annotations

from turnwise.testing import byte_tokenizer
from turnwise.text import ChatML, Template
from turnwise.text.notice import notice_ids


def test_a_notice_ends_the_reply_tells_and_opens_the_next():
    tokenizer = byte_tokenizer()
    for renderer in (ChatML(tokenizer), Template(tokenizer)):
        text = tokenizer.decode(notice_ids(renderer, "5 of 9 left"))
        assert text == "<|im_end|>\n<|im_start|>user\n5 of 9 left<|im_end|>\n<|im_start|>assistant\n"
