"""ChatML as a chat template, for tokenizers that we make: it renders what `ChatML` renders, character for character."""

from __future__ import annotations

import json

from turnwise.text.chatml import END, START, TOOLS_HEAD, TOOLS_TAIL
from turnwise.text.content import FAILED
from turnwise.text.parse import CLOSE, OPEN, THINK, THOUGHT


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_TOOLS = (
    f"{{{{ {_literal(TOOLS_HEAD)} }}}}"
    "{% for tool in tools %}{{ tool | tojson }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}"
    f"{{{{ {_literal(TOOLS_TAIL)} }}}}"
)
_HEAD = (
    "{% set first = messages[0].content or '' if messages[0].role == 'system' else none %}"
    "{% if first is not none or tools %}"
    f"{{{{ '{START}system\\n' + (first or '') }}}}"
    "{% if tools %}{% if first %}{{ '\\n\\n' }}{% endif %}" + _TOOLS + "{% endif %}"
    f"{{{{ '{END}\\n' }}}}"
    "{% endif %}"
)
_CALLS = (
    "{% for call in message.tool_calls or [] %}"
    "{% set f = call.function %}"
    "{% if said.any %}{{ '\\n' }}{% endif %}{% set said.any = true %}"
    f"{{{{ '{OPEN}\\n{{\"name\": ' + (f.name | tojson) + ', \"arguments\": ' }}}}"
    "{% if f.arguments is string %}{{ f.arguments }}{% else %}{{ f.arguments | tojson }}{% endif %}"
    f"{{{{ '}}\\n{CLOSE}' }}}}"
    "{% endfor %}"
    f"{{% for failed in message.{FAILED} or [] %}}"
    "{% if said.any %}{{ '\\n' }}{% endif %}{% set said.any = true %}"
    f"{{{{ '{OPEN}\\n' + failed.raw }}}}{{% if failed.status != 'unclosed_block' %}}{{{{ '\\n{CLOSE}' }}}}{{% endif %}}"
    "{% endfor %}"
)
_REPLY = (
    "{% if message.reasoning_content is defined and message.reasoning_content is not none %}"
    f"{{{{ '{THINK}\\n' + message.reasoning_content + '\\n{THOUGHT}\\n\\n' }}}}"
    "{% endif %}"
    "{{ message.content or '' }}"
    "{% set said = namespace(any=(message.content or '') != '') %}" + _CALLS
)
TEMPLATE = (
    _HEAD + "{% for message in messages %}{% if not (loop.first and message.role == 'system') %}"
    f"{{{{ '{START}' + message.role + '\\n' }}}}"
    "{% if message.role == 'assistant' %}" + _REPLY + "{% else %}{{ message.content or '' }}{% endif %}"
    f"{{{{ '{END}\\n' }}}}"
    "{% endif %}{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{START}assistant\\n' }}}}{{% endif %}}"
)
"""A Jinja chat template without a default system message."""
