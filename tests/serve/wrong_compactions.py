"""Compaction requests that are wrong, in a server that holds one session "s" and may hold no other, and the answer
of each; docs/serve.md shows them."""

from __future__ import annotations

import json
from typing import Any

GENERATE, CREATE, STEP = "/compact_generate", "/compact_session/create", "/compact_session/step"
WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    (GENERATE, {}, 422, "found nothing in 'prompt_ids'; expected a value. Change 'prompt_ids'."),
    (GENERATE, {"prompt_ids": []}, 422, "found [] in 'prompt_ids'; expected at least 1 of them. Change 'prompt_ids'."),
    (
        GENERATE,
        {"prompt_ids": [-1]},
        422,
        "found -1 in 'prompt_ids.0'; expected greater than or equal to 0. Change 'prompt_ids.0'.",
    ),
    (GENERATE, {"prompt_ids": [999]}, 400, "found token ids 999 to 999; expected 0 to 258. Change the request."),
    (
        GENERATE,
        {"prompt_ids": "hello"},
        422,
        "found 'hello' in 'prompt_ids'; expected a valid list. Change 'prompt_ids'.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "max_kv_len": 64, "n_compacts": 2},
        400,
        "found max_kv_len (a budget) beside n_compacts (fixed segments); expected one of them. Change one of them.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "max_total_tokens": 64},
        400,
        "found max_total_tokens without max_kv_len; expected both, or max_seq_len with segments. Change one of them.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "max_kv_len": 10},
        413,
        "found max_kv_len 10 for a prompt of 3 tokens, which always stay; expected at least 19, or "
        "nearly every token would compact. Raise max_kv_len.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "max_seq_len": 3},
        413,
        "found 3 tokens of prompt; expected fewer than max_seq_len 3. Send fewer tokens, or serve with a larger limit.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "compact_target_ratio": 0},
        422,
        "found 0 in 'compact_target_ratio'; expected greater than 0. Change 'compact_target_ratio'.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "compact_target_ratio": 1.5},
        422,
        "found 1.5 in 'compact_target_ratio'; expected less than or equal to 1. Change 'compact_target_ratio'.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "compaction_mode": "snapkv"},
        422,
        "found 'snapkv' in 'compaction_mode'; expected 'attention_matching' or 'markovian'. Change 'compaction_mode'.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "carryover_ratio": 1},
        422,
        "found 1 in 'carryover_ratio'; expected less than 1. Change 'carryover_ratio'.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "query_source": "repeat"},
        422,
        "found 'repeat' in 'query_source'; expected 'own', 'suffix', 'context', 'keys' or "
        "'gaussian'. Change 'query_source'.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "compact_window": 0},
        422,
        "found 0 in 'compact_window'; expected greater than or equal to 1. Change 'compact_window'.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "temperature": -1},
        422,
        "found -1 in 'temperature'; expected greater than or equal to 0. Change 'temperature'.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "budget_message_template": "{left} left"},
        400,
        "found budget_message_template '{left} left'; expected one that names only {used}, {total}, "
        "{remaining}. Change one of them.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "budget_message_template": "{used:99999999999}"},
        400,
        "found budget_message_template '{used:99999999999}'; expected one that names only {used}, {total}, "
        "{remaining}. Change one of them.",
    ),
    (
        GENERATE,
        {"prompt_ids": [10, 11, 12], "max_kv_length": 64},
        422,
        "found 64 in 'max_kv_length'; expected no such field. Change 'max_kv_length'.",
    ),
    (
        CREATE,
        {"prompt_ids": [10, 11, 12], "session_id": "s"},
        409,
        "found session 's', which is in use; expected an id of no open session. Choose another id.",
    ),
    (
        CREATE,
        {"prompt_ids": [10, 11, 12], "session_id": "t"},
        429,
        "found 1 sessions open; expected fewer than 1. Try again after the seconds that Retry-After names.",
    ),
    (
        CREATE,
        {"prompt_ids": [10, 11, 12], "session_id": "with blanks"},
        422,
        "found 'with blanks' in 'session_id'; expected text that matches ^[!-~]{1,128}$. Change 'session_id'.",
    ),
    (
        CREATE,
        {"prompt_ids": [10, 11, 12], "n_protect_turns": -2},
        422,
        "found -2 in 'n_protect_turns'; expected greater than or equal to -1. Change 'n_protect_turns'.",
    ),
    (
        STEP,
        {"session_id": "t"},
        404,
        "found session 't'; expected a session that is open. Create it first; idle ones are closed.",
    ),
    (
        STEP,
        {"session_id": "s", "max_response_tokens": 0},
        422,
        "found 0 in 'max_response_tokens'; expected greater than or equal to 1. Change 'max_response_tokens'.",
    ),
    (
        STEP,
        {"session_id": "s", "sequence": 3},
        409,
        "found step 3; expected step 0. Number the steps of a session 0, 1, 2, ...",
    ),
    (
        STEP,
        {"session_id": "s", "new_token_ids": [5] * 5000},
        413,
        "found 5034 tokens to read; expected fewer than the model's 4096. Send fewer tokens, or "
        "serve with a larger limit.",
    ),
]


def table() -> str:
    """As Markdown, one row a request."""
    rows = [f"| `{path}` `{_short(body)}` | {status} | {message} |" for path, body, status, message in WRONG]
    return "\n".join(["| request | status | message |", "|---|---|---|", *rows])


def _short(body: dict[str, Any]) -> str:
    text = json.dumps(body)
    return text if len(text) < 100 else text[:60] + " ..."
