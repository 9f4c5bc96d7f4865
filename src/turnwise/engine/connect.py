"""A URL to the engine behind it, by what the server says it is."""

from __future__ import annotations

from turnwise.engine.http import HttpEngine
from turnwise.engine.remote import Caller
from turnwise.engine.vllm_http import VllmHttpEngine
from turnwise.errors import EngineDown


async def connect(url: str, *, model: str = "", token: str = "") -> HttpEngine | VllmHttpEngine:
    """Ask GET /v1/models who serves there: `turnwise` has sessions and compaction, anything else is taken for vLLM."""
    url = url.rstrip("/").removesuffix("/v1")
    caller = Caller(token, timeout_s=30.0, patience_s=10.0)
    try:
        listed = (await caller.get(f"{url}/v1/models")).get("data") or []
    finally:
        await caller.close()
    found = [one for one in listed if not model or one["id"] == model]
    if not found:
        names = [one["id"] for one in listed]
        raise EngineDown(f"found models {names} at {url}; expected {model or 'at least one'}; name one that is served")
    if found[0].get("owned_by") == "turnwise":
        return HttpEngine(url, token=token)
    return VllmHttpEngine(url, found[0]["id"], token=token)
