"""Messages and tools, OpenAI shape."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]
"""One chat message, OpenAI shape: role, content, tool_calls, tool_call_id, name, reasoning_content."""


Tool = dict[str, Any]
"""One tool, OpenAI function-calling shape."""


ECHO_ROLES = ("system", "user", "tool", "assistant")
"""Roles whose text may be learnt by cross-entropy."""
