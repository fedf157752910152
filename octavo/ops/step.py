"""The arrays of one step: what a backend reads, allocated once and refilled.

Sizes of a step are the `num_*` integers; the arrays have room for the largest step. Meanings and
shapes are those of `ov_step`, `ov_sampling` and `ov_sample_output` in csrc/include/octavo.h.

Runs in: workers. Filled by: `octavo/worker/input_batch.py`, `octavo/sample/metadata.py`.
Knows nothing of: requests, schedulers, devices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt32Array = npt.NDArray[np.uint32]
UInt64Array = npt.NDArray[np.uint64]
Float32Array = npt.NDArray[np.float32]

_ONE = np.int32(1)
#: Changes rows of logits in place: (first logit row, [rows, vocab_size]). Called once per chunk of
#: rows, in order, on the thread that runs the step. A row it fills with NaN fails.
LogitsHook = Callable[[int, Float32Array], None]


class StepArrays:
    """Inputs of the forward segment. T tokens, R requests, L logit rows, G KV groups.

    Args:
        max_tokens: most tokens of a step.
        max_requests: most requests of a step, and the number of request rows.
        num_groups: KV groups.
        max_blocks: most blocks of one request in one group.
        last_tokens: [request rows] the token last drawn in each row, which the backend writes and
            reads; shared by the steps that are on their way at the same time. None: a new one.
    """

    __slots__ = (
        "_moving",
        "block_tables",
        "input_ids",
        "input_rows",
        "last_tokens",
        "logit_rows",
        "num_groups",
        "num_logits",
        "num_requests",
        "num_tokens",
        "positions",
        "query_start",
        "seq_lens",
        "slot_mapping",
    )

    def __init__(
        self,
        *,
        max_tokens: int,
        max_requests: int,
        num_groups: int,
        max_blocks: int,
        last_tokens: Int32Array | None = None,
    ) -> None:
        self.num_tokens = 0
        self.num_requests = 0
        self.num_logits = 0
        self.num_groups = num_groups
        self.input_ids: Int32Array = np.zeros(max_tokens, np.int32)  # [T]
        # [T]; >= 0: the id is last_tokens of this row, whatever input_ids says
        self.input_rows: Int32Array = np.full(max_tokens, -1, np.int32)
        # what moves by one from token to token lies together: see `advance`
        width = max(max_tokens, max_requests)
        self._moving: Int32Array = np.zeros((2 + num_groups, width), np.int32)
        self.positions: Int32Array = self._moving[0, :max_tokens]  # [T]
        self.query_start: Int32Array = np.zeros(max_requests + 1, np.int32)  # [R+1]
        self.seq_lens: Int32Array = self._moving[1, :max_requests]  # [R], this step included
        self.logit_rows: Int32Array = np.zeros(max_tokens, np.int32)  # [L] token indices
        self.slot_mapping: Int32Array = self._moving[2:, :max_tokens]  # [G, T]
        # [G, R, max_blocks]
        self.block_tables: Int32Array = np.zeros((num_groups, max_requests, max_blocks), np.int32)
        if last_tokens is None:
            last_tokens = np.zeros(max_requests, np.int32)
        self.last_tokens = last_tokens

    def advance(self) -> None:
        """From a step of one token per request to the step after it, if no block ends between."""
        # not `a[...] += 1`, which would also store the result over itself
        moving = self._moving[:, : self.num_requests]
        moving += _ONE


class SamplingArrays:
    """Inputs of the sample segment, one entry per logit row.

    Lists are CSR: row l owns [offsets[l], offsets[l+1]). A `None` list or `uses_* = False` means no
    row of this step has any.
    """

    __slots__ = (
        "bias_ids",
        "bias_offsets",
        "bias_values",
        "frequency_penalty",
        "grammar_masks",
        "logits_hook",
        "mask_row",
        "masks",
        "min_p",
        "num_logprobs",
        "output_index",
        "presence_penalty",
        "repetition_penalty",
        "report_ids",
        "report_offsets",
        "seed",
        "seen_counts",
        "seen_ids",
        "seen_offsets",
        "state_row",
        "target",
        "temperature",
        "top_k",
        "top_p",
        "uses_bias",
        "uses_masks",
        "uses_penalties",
        "uses_report_ids",
        "written_for",
    )

    def __init__(self, max_logits: int) -> None:
        self.temperature: Float32Array = np.zeros(max_logits, np.float32)  # 0: greedy
        self.top_p: Float32Array = np.ones(max_logits, np.float32)
        self.min_p: Float32Array = np.zeros(max_logits, np.float32)
        self.top_k: Int32Array = np.zeros(max_logits, np.int32)  # 0: off
        self.seed: UInt64Array = np.zeros(max_logits, np.uint64)
        self.output_index: UInt64Array = np.zeros(max_logits, np.uint64)
        self.state_row: Int32Array = np.full(max_logits, -1, np.int32)
        self.target: Int32Array = np.full(max_logits, -1, np.int32)  # >= 0: do not draw
        self.num_logprobs: Int32Array = np.full(max_logits, -1, np.int32)  # -1: none
        self.written_for: object = None  # the writer's note of whose numbers stand here
        self.uses_report_ids = False
        self.report_offsets: Int64Array = np.zeros(max_logits + 1, np.int64)
        self.report_ids: Int32Array = np.zeros(0, np.int32)  # instead of the most likely ones
        self.uses_penalties = False
        self.repetition_penalty: Float32Array = np.ones(max_logits, np.float32)
        self.presence_penalty: Float32Array = np.zeros(max_logits, np.float32)
        self.frequency_penalty: Float32Array = np.zeros(max_logits, np.float32)
        self.seen_offsets: Int64Array = np.zeros(max_logits + 1, np.int64)
        self.seen_ids: Int32Array = np.zeros(0, np.int32)
        self.seen_counts: Int32Array = np.zeros(0, np.int32)  # in the output; 0: prompt only
        self.uses_bias = False
        self.bias_offsets: Int64Array = np.zeros(max_logits + 1, np.int64)
        self.bias_ids: Int32Array = np.zeros(0, np.int32)
        self.bias_values: Float32Array = np.zeros(0, np.float32)  # -inf bans the id
        self.uses_masks = False
        self.mask_row: Int32Array = np.full(max_logits, -1, np.int32)
        self.masks: UInt32Array = np.zeros((0, 0), np.uint32)  # [rows, ceil(V / 32)]
        self.grammar_masks: list[int] = []  # rows of `masks` that a grammar narrows later
        self.logits_hook: LogitsHook | None = None  # called if the network records `logits_hook`

    def add_masks(self, masks: UInt32Array) -> None:
        """Narrows the rows `grammar_masks` by `masks`, which are in their order."""
        rows = self.grammar_masks
        self.masks[rows] &= masks.reshape(len(rows), -1)


class SampleOutputArrays:
    """Outputs of the sample segment. Logprob columns: the chosen id first, then falling logits.

    `max_logprobs` is K of the step; the arrays are replaced by larger ones when a step asks more.
    """

    __slots__ = (
        "hook_errors",
        "logprob_ids",
        "logprob_ranks",
        "logprob_values",
        "max_logprobs",
        "sampled",
        "status",
    )

    OK = 0
    NAN = 1
    NOTHING_ALLOWED = 2
    HOOK_FAILED = 3

    def __init__(self, max_logits: int) -> None:
        self.hook_errors: dict[int, BaseException] = {}  # why rows have HOOK_FAILED
        self.sampled: Int32Array = np.zeros(max_logits, np.int32)
        self.status: Int32Array = np.zeros(max_logits, np.int32)
        self.max_logprobs = -1  # -1: no row asks
        self.logprob_ids: Int32Array = np.zeros((0, 0), np.int32)  # [L, K+1]
        self.logprob_values: Float32Array = np.zeros((0, 0), np.float32)
        self.logprob_ranks: Int32Array = np.zeros((0, 0), np.int32)  # from 1

    def reserve_logprobs(self, num_logits: int, max_logprobs: int) -> None:
        """Shapes the logprob arrays for a step of `num_logits` rows; -1: none are wanted."""
        self.max_logprobs = max_logprobs
        shape = (num_logits, max_logprobs + 1)
        if max_logprobs < 0 or self.logprob_ids.shape == shape:
            return
        self.logprob_ids = np.zeros(shape, np.int32)
        self.logprob_values = np.zeros(shape, np.float32)
        self.logprob_ranks = np.zeros(shape, np.int32)
