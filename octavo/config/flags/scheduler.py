"""Flags of the scheduler (vLLM's SchedulerConfig group)."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, FLOAT, INT, SIZE, STR, Flag, hint, unsupported

GROUP = "SchedulerConfig"

FLAGS = (
    Flag(
        "max-num-batched-tokens",
        SIZE,
        None,
        "tokens per step",
        low=1,
        auto="512 on CPU, lowered after the warm-up on slow machines",
    ),
    Flag("max-num-seqs", INT, None, "requests per step", low=1, auto="128 on CPU"),
    Flag(
        "max-num-scheduled-tokens",
        SIZE,
        None,
        "tokens per step if smaller than the above",
        low=1,
        auto="the above",
    ),
    Flag(
        "max-num-active-seqs",
        INT,
        None,
        "running requests if fewer than max-num-seqs",
        low=1,
        auto="max-num-seqs",
    ),
    Flag(
        "max-num-queued-reqs",
        INT,
        None,
        "requests in flight (waiting and running); more: 503",
        low=1,
        auto="no limit",
    ),
    Flag(
        "max-num-queued-tokens",
        SIZE,
        None,
        "prompt tokens waiting for prefill; more: 503",
        low=1,
        auto="no limit",
    ),
    Flag("enable-chunked-prefill", BOOL, None, "cut long prompts to the step's budget", auto="on"),
    Flag(
        "long-prefill-token-threshold",
        INT,
        0,
        "largest share of one prompt in a step with others; 0: no limit",
        low=0,
    ),
    hint(
        "long-prefill-token-threshold-adaptive",
        BOOL,
        False,
        "raise it to a fair share",
        "the threshold is fixed",
    ),
    Flag(
        "scheduling-policy", STR, "fcfs", "order of waiting requests", choices=("fcfs", "priority")
    ),
    Flag(
        "async-scheduling",
        BOOL,
        None,
        "prepare the next step while one computes",
        auto="off on CPU, where preparing takes microseconds of the cores that compute",
    ),
    Flag("stream-interval", INT, 1, "tokens per streamed output", low=1),
    Flag(
        "scheduler-reserve-full-isl",
        BOOL,
        True,
        "admit a request only if its whole prompt fits in the cache",
    ),
    Flag("watermark", FLOAT, 0.0, "share of blocks kept free at admission", low=0.0, high=0.9),
    unsupported(
        "scheduler-cls",
        STR,
        None,
        "class path of another scheduler",
        "the scheduler cannot be replaced",
    ),
    hint("disable-chunked-mm-input", BOOL, False, "never cut a media item", "text models only"),
    hint(
        "prefill-schedule-interval",
        INT,
        1,
        "steps between prefills, to balance engines",
        "there is one engine",
    ),
    hint(
        "disable-hybrid-kv-cache-manager",
        BOOL,
        None,
        "one block size for all layer types",
        "all groups share one block size",
    ),
)
