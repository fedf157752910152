"""The native sampler on given logits, and what its distributions should be.

Knows nothing of: workers, requests.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.ops.program import Op, Rows
from octavo.ops.step import SampleOutputArrays, SamplingArrays, StepArrays
from tests.fakes.plan_rig import F32, plan_rig

F64 = npt.NDArray[np.float64]
INF = np.float32(np.inf)


def run(
    logits: F32,
    sampling: SamplingArrays,
    *,
    isa: str | None = None,
    num_threads: int = 1,
    logprobs: str = "",
    as_logits: bool = False,
    max_logprobs: int = -1,
) -> tuple[SampleOutputArrays, StepArrays, F32]:
    """The sample segment as recorded for a server; also the logits afterwards."""
    num_rows, vocab_size = logits.shape
    with plan_rig(isa, num_threads, max_tokens=max(num_rows, 1), vocab_size=vocab_size) as rig:
        x = rig.buffer(vocab_size, Rows.L)
        if logprobs == "raw":
            rig.emit_sample(Op.LOGPROBS, [x], i=[0, int(as_logits)])
        rig.emit_sample(Op.PENALIZE, [x])
        rig.emit_sample(Op.MASK, [x])
        if logprobs == "processed":
            rig.emit_sample(Op.LOGPROBS, [x], i=[1, int(as_logits)])
        rig.emit_sample(Op.SAMPLE, [x])
        plan = rig.build()
        output, step = rig.sample(x, logits, sampling, max_logprobs=max_logprobs)
        return output, step, plan.read(x.buffer, num_rows)


def draws(
    num_rows: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
) -> SamplingArrays:
    """Rows that draw with seeds `seed`, `seed` + 1, ..."""
    sampling = SamplingArrays(num_rows)
    sampling.temperature[:] = temperature
    sampling.top_k[:], sampling.top_p[:], sampling.min_p[:] = top_k, top_p, min_p
    sampling.seed[:] = seed + np.arange(num_rows)
    return sampling


def kept_probabilities(
    logits: F32, temperature: float, top_k: int, top_p: float, min_p: float
) -> F64:
    """The distribution drawn from: min-p, then top-k, then top-p; ties to the lowest id."""
    x = logits.astype(np.float64) / temperature
    weights = np.exp(x - x.max())
    order = np.lexsort((np.arange(len(x)), -logits.astype(np.float64)))
    order = order[weights[order] >= min_p]
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        before = np.cumsum(weights[order]) - weights[order]
        order = order[before < np.float32(top_p) * weights[order].sum()]
    kept = np.zeros_like(weights)
    kept[order] = weights[order] / weights[order].sum()
    return kept


def log_softmax(logits: F32) -> F64:
    x = logits.astype(np.float64)
    top = x.max()
    return x - top - np.log(np.exp(x - top).sum())


def normal(*shape: int, seed: int = 0, scale: float = 3.0) -> F32:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def with_lists(sampling: SamplingArrays) -> SamplingArrays:
    """Three rows: biases and bans, seen ids, both and nothing in the middle."""
    sampling.uses_bias = sampling.uses_penalties = True
    sampling.bias_offsets[:4] = [0, 3, 3, 4]
    sampling.bias_ids = np.array([1, 5, 19, 2], np.int32)
    sampling.bias_values = np.array([2.5, -INF, -1, 4], np.float32)
    sampling.seen_offsets[:4] = [0, 2, 2, 5]
    sampling.seen_ids = np.array([1, 4, 0, 2, 3], np.int32)
    sampling.seen_counts = np.array([0, 3, 1, 0, 2], np.int32)
    sampling.repetition_penalty[:3] = [1.3, 2.0, 0.8]
    sampling.frequency_penalty[:3] = [0.5, 2.0, -0.25]
    sampling.presence_penalty[:3] = [1.0, 2.0, 0.0]
    return sampling


def with_report_ids(sampling: SamplingArrays, *lists: list[int]) -> SamplingArrays:
    sampling.uses_report_ids = True
    sampling.report_offsets[1 : len(lists) + 1] = np.cumsum([len(ids) for ids in lists])
    sampling.report_ids = np.array([i for ids in lists for i in ids], np.int32)
    sampling.num_logprobs[: len(lists)] = [len(ids) or 2 for ids in lists]
    return sampling
