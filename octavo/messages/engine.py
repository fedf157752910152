"""Front end <-> EngineCore: one struct per message, packed as arrays by msgspec.

A feature adds one optional field that holds its own struct; the structs themselves stay small.

Written by: `octavo/frontend/input_processor.py` (requests), `octavo/core/scheduler.py` (outputs),
`octavo/core/engine_core_proc.py` (handshake). Knows nothing of: sockets, tensors, HTTP.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from octavo.config.engine import KVEventsConfig
from octavo.sampling_params import SamplingParams


class FinishReason(IntEnum):
    """Why a request ended; `str()` gives the word the APIs and the metrics use."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3
    REPETITION = 4  # `repetition_detection` found one

    def __str__(self) -> str:
        return self.name.lower()


#: `stop_reason` of a request that ended for repeating itself
REPETITION_DETECTED = "repetition_detected"


class RequestKind(IntEnum):
    """First byte of each front end -> core message (`octavo/messages/codec.py`)."""

    ADD = 0  # body: EngineCoreRequest
    ABORT = 1  # body: list[str] of request ids
    UTILITY = 2  # body: UtilityCall
    SHUTDOWN = 3  # body: Shutdown
    CONFIG = 4  # body: EngineConfig, once, as the answer to Hello


class Adapter(msgspec.Struct, array_like=True, frozen=True):
    """A LoRA adapter: its number here, the name clients use, and where it was read from."""

    id: int
    name: str
    path: str


class EngineCoreRequest(msgspec.Struct, array_like=True, gc=False):
    """One request with everything checked; the core never refuses it for its values.

    `eos_token_ids` end the request unless `sampling_params.ignore_eos`; `arrival_time_s` is Unix
    time and orders equal priorities; `max_tokens` inside `sampling_params` is set (never None) and
    fits in the window.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    arrival_time_s: float
    eos_token_ids: list[int] = []
    priority: int = 0
    cache_salt: str | None = None
    client_index: int = 0
    adapter: Adapter | None = None


class StepTimes(msgspec.Struct, array_like=True):
    """Where a core's time went since its start: answer to the utility call `step_times`.

    With one step on its way at a time, everything but `backend_s` is what the engine itself costs;
    with two, `step_s` also holds the waiting for the backend.
    """

    num_steps: int = 0
    step_s: float = 0.0  # in `EngineCore.step`
    backend_s: float = 0.0  # of it, in the backend: kernels
    io_s: float = 0.0  # with messages: receiving, decoding, encoding, sending


class UtilityCall(msgspec.Struct, array_like=True):
    """A rare call with an answer: `reset_prefix_cache`, `ping`, ..."""

    call_id: int
    method: str
    args: list[object] = []


class Shutdown(msgspec.Struct, array_like=True):
    """Take no more requests, let running ones finish for at most `timeout_s`, then exit 0."""

    timeout_s: float = 0.0


class TokenLogprobs(msgspec.Struct, array_like=True, gc=False):
    """Candidates at one position: the chosen (or prompt) token first, then the most likely ones.

    Three lists of equal length; `ranks[0]` is the chosen token's rank in the vocabulary, counted
    from 1.
    """

    token_ids: list[int]
    logprobs: list[float]
    ranks: list[int]


class RequestEvents(msgspec.Struct, array_like=True, gc=False):
    """Times of `time.monotonic()` in seconds (the clock is shared by all processes of a host)."""

    queued_s: float = 0.0
    scheduled_s: float = 0.0
    num_preemptions: int = 0


class EngineCoreOutput(msgspec.Struct, array_like=True, gc=False):
    """What one step added to one request. `finish_reason` is set in the last one, exactly once,
    except that a request which its front end aborted has no last one."""

    request_id: str
    new_token_ids: list[int]
    finish_reason: FinishReason | None = None
    # the stop token id that ended it (not for EOS), or REPETITION_DETECTED
    stop_reason: int | str | None = None
    logprobs: list[TokenLogprobs] | None = None  # one per new token
    # of the whole prompt, with the first output; first prompt token: None
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached_tokens: int = 0
    events: RequestEvents | None = None  # with the first and the last output
    error: str | None = None  # with FinishReason.ERROR: one sentence for the client
    is_request_error: bool = False  # with `error`: the request asked for the impossible


class PrefixCacheStats(msgspec.Struct, array_like=True, gc=False):
    """Tokens looked up in the prefix cache and found there, since the last report."""

    queries: int = 0
    hits: int = 0


class SchedulerStats(msgspec.Struct, array_like=True, gc=False):
    """State of the scheduler after a step; counts are since the last report."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0  # share of blocks in use, 0..1
    prefix_cache: PrefixCacheStats = msgspec.field(default_factory=PrefixCacheStats)
    num_preemptions: int = 0
    num_scheduled_tokens: int = 0  # in this step


class UtilityResult(msgspec.Struct, array_like=True):
    """Answer to one `UtilityCall`: `error` is None on success."""

    call_id: int
    result: object = None
    error: str | None = None


class EngineCoreOutputs(msgspec.Struct, array_like=True):
    """Everything one step has to say to one front end."""

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = []
    scheduler_stats: SchedulerStats | None = None
    timestamp_s: float = 0.0  # time.monotonic() when the step ended
    utility_result: UtilityResult | None = None
    dead: str | None = None  # last words of a core that cannot go on: one sentence with the cause


class PhaseTiming(msgspec.Struct, array_like=True):
    """One phase of start-up in one process, `time.monotonic()` seconds."""

    process: str
    name: str
    start_s: float
    end_s: float


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """Core -> front end, as soon as its socket is connected."""

    engine_index: int
    pid: int


class Ready(msgspec.Struct, array_like=True, tag="ready"):
    """Core -> front end: it can answer a completion now.

    `max_model_len` may be lower than asked (see the window rule in the memory plan); `notes` is
    what the core has logged about its plan; `phases` is its share of the start-up table;
    `kv_events` says where events of the prefix cache are published.
    """

    engine_index: int
    max_model_len: int
    num_blocks: int
    block_size: int
    kv_cache_size_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    dtype: str
    notes: list[str] = []
    phases: list[PhaseTiming] = []
    kv_events: KVEventsConfig | None = None


class StartFailed(msgspec.Struct, array_like=True, tag="failed"):
    """Core -> front end: start-up failed; `message` is one sentence with cause and remedy."""

    message: str
    exit_code: int = 1
    traceback: str = ""


#: What the core sends before its first EngineCoreOutputs.
Handshake = Hello | Ready | StartFailed
