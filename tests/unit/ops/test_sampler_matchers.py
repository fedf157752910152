"""Rows whose tokens a grammar's matcher must allow, asked by the native sampler."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import numpy.typing as npt
import pytest

from octavo.ops.library import available_isas
from octavo.ops.step import SampleOutputArrays, SamplingArrays
from tests.fakes.plan_rig import F32
from tests.fakes.sampler_rig import INF, draws, log_softmax, normal, run

each_isa = pytest.mark.parametrize("isa", available_isas())

ALLOWS = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t
)
FILL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Matchers:
    """Matcher n + 1 allows the tokens `allowed[n]`; those in `failing` cannot make masks."""

    def __init__(self, allowed: npt.NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.failing: set[int] = set()
        self.asked: list[tuple[int, int]] = []
        self.filled: list[int] = []
        self._lock = threading.Lock()
        self._calls = ALLOWS(self._allows), FILL(self._fill)

    def _allows(self, matcher: int, ids: ctypes.Array[ctypes.c_uint32], count: int) -> int:
        assert count == 1
        with self._lock:
            self.asked.append((matcher - 1, ids[0]))
        return int(self.allowed[matcher - 1, ids[0]])

    def _fill(self, matcher: int, address: int, num_bytes: int) -> int:
        with self._lock:
            self.filled.append(matcher - 1)
        if matcher - 1 in self.failing:
            return -1
        padded = np.zeros(num_bytes * 8, bool)
        padded[: self.allowed.shape[1]] = self.allowed[matcher - 1]
        bits = np.packbits(padded, bitorder="little").tobytes()
        ctypes.memmove(address, bits, num_bytes)
        return 0

    def of(self, sampling: SamplingArrays) -> SamplingArrays:
        """Sets row n to matcher n + 1."""
        sampling.uses_matchers = True
        sampling.matchers[: len(self.allowed)] = 1 + np.arange(len(self.allowed))
        allows, fill = (ctypes.cast(call, ctypes.c_void_p).value or 0 for call in self._calls)
        sampling.matcher_calls = allows, fill
        return sampling


def some_tokens(num_rows: int, vocab_size: int, share: float) -> npt.NDArray[np.bool_]:
    rng = np.random.default_rng(num_rows)
    allowed = rng.random((num_rows, vocab_size)) < share
    allowed[np.arange(num_rows), rng.integers(0, vocab_size, num_rows)] = True
    return allowed


@each_isa
@pytest.mark.parametrize("num_threads", [1, 2])
def test_greedy_takes_the_most_likely_token_that_is_allowed(isa: str, num_threads: int) -> None:
    logits, matchers = normal(40, 500), Matchers(some_tokens(40, 500, 0.5))
    sampling = matchers.of(SamplingArrays(40))
    sampling.matchers[7] = 0
    output, _, after = run(logits, sampling, isa=isa, num_threads=num_threads)
    expected = np.where(matchers.allowed, logits, -INF).argmax(1)
    expected[7] = logits[7].argmax()
    np.testing.assert_array_equal(output.sampled, expected)
    np.testing.assert_array_equal(after, logits)
    best = logits.argmax(1)
    assert sorted(matchers.asked) == [(row, best[row]) for row in range(40) if row != 7]
    refused = [row for row in range(40) if row != 7 and not matchers.allowed[row, best[row]]]
    assert sorted(matchers.filled) == refused, "a mask is made of who was refused"


def frequencies(output: SampleOutputArrays, vocab_size: int) -> npt.NDArray[np.float64]:
    return np.bincount(output.sampled, minlength=vocab_size) / len(output.sampled)


def test_two_draws_have_the_distribution_of_one_from_what_is_allowed() -> None:
    num_rows, vocab_size = 4096, 20
    logits = np.tile(normal(1, vocab_size), (num_rows, 1))
    allowed = np.zeros(vocab_size, bool)
    allowed[[0, 3, 4, 11, 19]] = True
    matchers = Matchers(np.tile(allowed, (num_rows, 1)))
    output, _, _ = run(logits, matchers.of(draws(num_rows, temperature=0.7)))
    weights = np.where(allowed, np.exp(logits[0].astype(float) / 0.7), 0)
    expected = weights / weights.sum()
    assert 0.1 < len(matchers.filled) / num_rows < 0.9, "both draws matter"
    error = np.sqrt(expected * (1 - expected) / num_rows)
    assert (np.abs(frequencies(output, vocab_size) - expected) <= 4 * error).all()


def test_the_second_draw_does_not_follow_from_the_first() -> None:
    """Rows that were refused because their number was small must not all take the first token."""
    num_rows = 2048
    logits = np.zeros((num_rows, 4), np.float32)
    matchers = Matchers(np.tile([False, True, True, True], (num_rows, 1)))
    output, _, _ = run(logits, matchers.of(draws(num_rows)))
    refused = np.array(matchers.filled)
    shares = np.bincount(output.sampled[refused], minlength=4) / len(refused)
    np.testing.assert_allclose(shares, [0, 1 / 3, 1 / 3, 1 / 3], atol=0.08)


@each_isa
@pytest.mark.parametrize("how", ["top_k", "top_p", "min_p", "logprobs"])
def test_who_looks_at_all_logits_sees_what_is_not_allowed_as_such(isa: str, how: str) -> None:
    logits, matchers = normal(12, 300), Matchers(some_tokens(12, 300, 0.3))
    masked = np.where(matchers.allowed, logits, -INF)

    def settings() -> SamplingArrays:
        sampling = draws(12)
        if how == "logprobs":
            sampling.num_logprobs[:] = 2
        else:
            getattr(sampling, how)[:] = {"top_k": 3, "top_p": 0.5, "min_p": 0.2}[how]
        return sampling

    def sampled(values: F32, sampling: SamplingArrays) -> tuple[SampleOutputArrays, F32]:
        report = "processed" if how == "logprobs" else ""
        output, _, after = run(values, sampling, isa=isa, logprobs=report, max_logprobs=2)
        return output, after

    expected, _ = sampled(masked, settings())
    output, after = sampled(logits, matchers.of(settings()))
    np.testing.assert_array_equal(after, masked)
    assert output.sampled.tolist() == expected.sampled.tolist()
    np.testing.assert_array_equal(output.logprob_values, expected.logprob_values)
    assert matchers.asked == []


def test_reported_raw_logprobs_change_no_token_and_are_of_the_model() -> None:
    logits, matchers = normal(40, 300), Matchers(some_tokens(40, 300, 0.5))
    plain, _, _ = run(logits, matchers.of(draws(40)))
    sampling = matchers.of(draws(40))
    sampling.num_logprobs[:] = 1
    output, _, _ = run(logits, sampling, logprobs="raw", max_logprobs=1)
    assert output.sampled.tolist() == plain.sampled.tolist()
    chosen = [log_softmax(row)[token] for row, token in zip(logits, output.sampled, strict=True)]
    np.testing.assert_allclose(output.logprob_values[:, 0], chosen, atol=2e-6)


def test_a_mask_and_a_matcher_hold_together() -> None:
    logits = normal(30, 64)
    own, matchers = some_tokens(30, 64, 0.5), Matchers(some_tokens(30, 64, 0.5))
    both = own & matchers.allowed
    both[:, 5] = own[:, 5] = matchers.allowed[:, 5] = True
    sampling = matchers.of(draws(30))
    sampling.uses_masks = True
    sampling.mask_row[:30] = np.arange(30)
    sampling.masks = np.packbits(own, axis=1, bitorder="little").view(np.uint32)
    output, _, _ = run(logits, sampling)
    assert both[np.arange(30), output.sampled].all()
    assert set(np.nonzero(~matchers.allowed[np.arange(30), output.sampled])[0]) == set()


def test_a_matcher_that_allows_nothing_or_fails_is_said() -> None:
    allowed = np.zeros((3, 40), bool)
    allowed[2, 7] = True
    matchers = Matchers(allowed)
    matchers.failing = {1}
    logits = normal(3, 40)
    output, _, _ = run(logits, matchers.of(SamplingArrays(3)))
    assert output.status.tolist() == [2, 0, 0]
    assert output.sampled.tolist() == [-1, logits[1].argmax(), 7], "the grammar will refuse it"


def test_matchers_need_their_calls() -> None:
    from octavo.errors import EngineError

    sampling = Matchers(np.ones((1, 8), bool)).of(SamplingArrays(1))
    sampling.matcher_calls = (0, 0)
    with pytest.raises(EngineError, match="matcher_calls"):
        run(normal(1, 8), sampling)
