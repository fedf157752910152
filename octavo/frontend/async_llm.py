"""`AsyncLLM`: the engine as the HTTP side sees it.

Signatures are final; see `octavo/frontend/request_stream.py` for what `add_request` gives back.

Runs in: API process, on the event loop's thread only. Owns: the output task.
Knows nothing of: HTTP, sockets, processes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

from octavo.config.engine import EngineConfig, ModelConfig
from octavo.frontend.prompt import Prompt
from octavo.outputs import RequestOutput
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizer.tokenizer import Tokenizer


class RequestStream(Protocol):
    """The outputs of one request: an async iterator and an async context manager.

    Leaving it in any way (`aclose()`, end of `async with`, cancellation while waiting) before the
    request has ended aborts the request in the core.
    """

    request_id: str
    prompt_token_ids: list[int]  # as the engine sees them; known before the first output

    def __aiter__(self) -> AsyncIterator[RequestOutput]: ...
    async def __anext__(self) -> RequestOutput: ...
    async def next_within(self, timeout_s: float) -> RequestOutput | None:
        """The next output, or None if none came in time (nothing is lost or aborted): for keep-alive
        comments. Raises StopAsyncIteration at the end."""

    async def aclose(self) -> None: ...
    async def __aenter__(self) -> RequestStream: ...
    async def __aexit__(self, *exc: object) -> None: ...


class AsyncLLM(Protocol):
    """Generation for many concurrent callers."""

    tokenizer: Tokenizer
    config: EngineConfig
    model_config: ModelConfig
    max_model_len: int

    async def add_request(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestStream:
        """Checks everything and queues the request.

        Raises:
            RequestError: the request cannot be served as sent (InvalidParameter, PromptTooLong, ...).
            Overloaded, NotReady: a queue limit is reached; draining.
            EngineDead: the core is gone.
        """

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """`add_request` and its outputs as one async generator (errors come with the first
        output)."""

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids; long texts are encoded off the event loop."""

    async def abort(self, request_id: str) -> None: ...
    async def reset_prefix_cache(self) -> bool: ...
    def start(self) -> None:
        """Starts the output task; needs a running event loop."""

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests (NotReady) and waits until the running ones have ended; True if they
        did. The rest get GenerationFailed at the limit."""

    async def shutdown(self) -> None: ...
    async def wait_dead(self) -> str:
        """Returns the reason once the core is dead."""

    @property
    def is_running(self) -> bool:
        """True while the core can answer."""

    @property
    def is_draining(self) -> bool: ...
    @property
    def dead_reason(self) -> str | None: ...
    @property
    def num_unfinished_requests(self) -> int: ...
    def is_stalled(self) -> bool:
        """True if the core has work and has said nothing for `stall_limit_s` (30 s)."""
