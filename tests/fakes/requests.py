"""Requests as the front end makes them, for tests of the core."""

from __future__ import annotations

from typing import Any

from octavo.messages.engine import EngineCoreRequest
from octavo.sampling_params import SamplingParams


def core_request(
    request_id: str = "a",
    prompt: list[int] | None = None,
    *,
    priority: int = 0,
    arrival_time_s: float = 0.0,
    cache_salt: str | None = None,
    eos_token_ids: list[int] | None = None,
    **params: Any,
) -> EngineCoreRequest:
    """A request; other names are fields of `SamplingParams`."""
    return EngineCoreRequest(
        request_id=request_id,
        prompt_token_ids=[1, 2, 3] if prompt is None else prompt,
        sampling_params=SamplingParams(**{"max_tokens": 5, "temperature": 0.0, **params}),
        arrival_time_s=arrival_time_s,
        eos_token_ids=eos_token_ids or [],
        priority=priority,
        cache_salt=cache_salt,
    )
