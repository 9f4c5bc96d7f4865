"""What `turnwise serve` may be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.config.run import Positive
from turnwise.config.section import Section

Seconds = Annotated[float, Field(gt=0.0)]


class ServeConfig(Section):
    """The model to serve, where, and its limits."""

    model: str = ""
    """`tiny` (random weights), `smollm2`, a folder such as a run's checkpoint, or a hub name."""
    name: str = ""
    """Name that clients ask for; empty is the model's own."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every network this machine is in."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one and prints it."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights."""
    device: str = "auto"
    """auto takes CUDA where there is one, else the CPU."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads for torch; 0 leaves torch's own choice."""
    renderer: str = "auto"
    """How messages become tokens; auto goes by the model's name and chat template."""
    admin_token: str = ""
    """What /update_weights, /pause and /resume ask for as bearer token; empty closes those routes. The environment
    variable TURNWISE_ADMIN_TOKEN sets it without showing it to other users of the machine."""
    max_body_bytes: Positive = 8_388_608
    """Longest request body."""
    max_prompt_tokens: Positive = 131_072
    """Longest prompt; the model's own context is a limit too."""
    max_tokens: Positive = 1024
    """Longest reply where a request does not say."""
    max_cache_mb: Annotated[int, Field(ge=0)] = 2048
    """Most memory for keys and values; 0 is no limit. What has no room waits; idle sessions give theirs up first."""
    max_running: Positive = 256
    """Most replies that share forward passes; further ones wait."""
    max_client_sessions: Annotated[int, Field(ge=0)] = 0
    """Most conversations of one client (X-Client-ID, else its address) at once; 0 is without limit."""
    max_sessions: Positive = 1024
    """Most conversations held open between requests."""
    session_ttl_s: Seconds = 3600.0
    """A conversation that nobody used for so long is closed."""
    max_requests: Positive = 512
    """Most requests being answered at once; further ones are told to come back later."""
    deadline_s: Seconds = 600.0
    """Longest time a reply is sampled for; then it ends as it is."""
    stall_s: Seconds = 60.0
    """A reader of a stream that takes nothing for so long is cut off."""
    grace_s: Seconds = 10.0
    """Time that running requests have to finish once the server is told to stop."""
    seed: int = 0
    """Seed of the random weights of `tiny`; a request without a seed of its own draws one that nobody else has."""
