"""The native sampler: which token, with which probability, and the log-probabilities beside it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import EngineError
from octavo.ops.library import available_isas
from octavo.ops.philox import uniform
from octavo.ops.step import SamplingArrays
from tests.fakes.sampler_rig import (
    F64,
    INF,
    draws,
    kept_probabilities,
    normal,
    run,
    with_lists,
    with_report_ids,
)

ISAS = available_isas()
each_isa = pytest.mark.parametrize("isa", ISAS)


# ---- greedy


@each_isa
@pytest.mark.parametrize("vocab_size", [1, 2, 15, 16, 17, 1000, 49152])
def test_greedy_takes_the_most_likely_token(isa: str, vocab_size: int) -> None:
    logits = normal(3, vocab_size)
    output, _, _ = run(logits, SamplingArrays(3), isa=isa)
    np.testing.assert_array_equal(output.sampled, logits.argmax(1))
    np.testing.assert_array_equal(output.status, 0)


@each_isa
def test_greedy_ties_go_to_the_lowest_id(isa: str) -> None:
    logits = np.full((4, 100), -5.0, np.float32)
    logits[0, [99, 17, 50]] = 2
    logits[1, [31, 32]] = 0
    logits[1, 31] = -0.0
    output, _, _ = run(logits, SamplingArrays(4), isa=isa)
    assert output.sampled.tolist() == [17, 31, 0, 0]


# ---- drawing


@each_isa
@pytest.mark.parametrize("vocab_size", [1023, 1024, 1025, 2500, 3072])
def test_the_largest_logit_is_found_anywhere_and_of_equals_the_first(
    isa: str, vocab_size: int
) -> None:
    """Kernels look for it in the block of the vocabulary that has it."""
    ids = {0, 15, 16, 1007, 1008, 1022, 1023, 1024, 2047, 2048, vocab_size - 2, vocab_size - 1}
    chosen = sorted(i for i in ids if i < vocab_size)
    logits = normal(len(chosen), vocab_size)
    for row, first in enumerate(chosen):
        logits[row, [*chosen[row:], first]] = 50
        logits[row, :first:7] = -INF
    logits[0, 1:] = -0.0
    logits[0, 0] = 0.0
    output, _, _ = run(logits, draws(len(logits), temperature=0), isa=isa)
    np.testing.assert_array_equal(output.sampled, chosen)


@each_isa
def test_the_draw_is_philox_of_seed_and_output_index(isa: str) -> None:
    vocab_size = 1 << 12
    sampling = SamplingArrays(64)
    sampling.temperature[:] = 1
    sampling.seed[:] = np.random.default_rng(0).integers(0, 2**64, 64, np.uint64)
    sampling.output_index[:] = [*range(32), *(2**32 + np.arange(32))]
    output, _, _ = run(np.zeros((64, vocab_size), np.float32), sampling, isa=isa)
    expected = [
        int(uniform(int(seed), int(index)) * vocab_size)
        for seed, index in zip(sampling.seed, sampling.output_index, strict=True)
    ]
    assert output.sampled.tolist() == expected


def assert_drawn_from(
    sampled: int, probabilities: F64, draw: float, tolerance: float = 2e-6
) -> None:
    """`sampled` is where the cumulative probability passes `draw`, up to rounding."""
    assert probabilities[sampled] > 0
    end = np.cumsum(probabilities)[sampled]
    assert end - probabilities[sampled] - tolerance <= draw <= end + tolerance


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    vocab_size=st.sampled_from([1, 5, 16, 300, 3000]),
    scale=st.sampled_from([0.01, 1.0, 4.0, 30.0]),
    temperature=st.sampled_from([0.01, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 17, 250, 10_000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    isa=st.sampled_from(ISAS),
    has_ties=st.booleans(),
)
def test_filters_and_the_draw_agree_with_float64(
    vocab_size: int,
    scale: float,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    isa: str,
    has_ties: bool,
) -> None:
    logits = normal(8, vocab_size, scale=scale)
    if has_ties:
        logits = np.round(logits)
    logits[:, ::7] = -INF
    logits[:, -1] = 0
    sampling = draws(8, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    output, _, _ = run(logits, sampling, isa=isa)
    assert (output.status == 0).all()
    for row in range(8):
        expected = kept_probabilities(logits[row], temperature, top_k, top_p, min_p)
        assert_drawn_from(int(output.sampled[row]), expected, uniform(row, 0))


@each_isa
@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"), [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.8, 0.0), (0, 1.0, 0.3)]
)
def test_frequencies_follow_the_distribution(
    isa: str, top_k: int, top_p: float, min_p: float
) -> None:
    num_draws, logits = 4000, normal(20, scale=1.0)
    sampling = draws(num_draws, temperature=0.8, top_k=top_k, top_p=top_p, min_p=min_p, seed=99)
    output, _, _ = run(np.tile(logits, (num_draws, 1)), sampling, isa=isa)
    probabilities = kept_probabilities(logits, 0.8, top_k, top_p, min_p)
    counts = np.bincount(output.sampled, minlength=20)
    kept = probabilities > 0
    assert counts[~kept].sum() == 0
    chi_square = ((counts - num_draws * probabilities)[kept] ** 2 / probabilities[kept]).sum()
    # 99.9th percentile of chi-square with 19 degrees of freedom
    assert chi_square / num_draws < 43.8


@each_isa
def test_a_flat_distribution_needs_the_whole_vocabulary(isa: str) -> None:
    vocab_size = 20_000
    logits = normal(6, vocab_size, scale=0.001)
    sampling = draws(6, top_p=0.9)
    sampling.top_k[3:] = 15_000
    output, _, _ = run(logits, sampling, isa=isa)
    for row in range(6):
        top_k = int(sampling.top_k[row])
        expected = kept_probabilities(logits[row], 1.0, top_k, 0.9, 0.0)
        assert_drawn_from(int(output.sampled[row]), expected, uniform(row, 0), 2e-4)


@each_isa
def test_a_long_tail_is_reached_when_the_nucleus_is_nearly_everything(isa: str) -> None:
    # one id has half of the mass, the rest is spread below e^-10 of it
    logits = np.full((1, 100_000), -np.log(100_000), np.float32)
    logits[0, 77] = 0
    chosen = {
        int(run(logits, draws(1, top_p=0.999, seed=seed), isa=isa)[0].sampled[0])
        for seed in range(12)
    }
    assert 77 in chosen
    assert len(chosen) > 3


# ---- rows are independent


@each_isa
def test_a_row_has_the_same_result_alone_in_a_batch_and_with_any_number_of_threads(
    isa: str,
) -> None:
    logits = normal(70, 3000)
    sampling = draws(70, top_p=0.9)
    sampling.temperature[::3] = 0
    sampling.top_k[::2] = 40
    sampling.num_logprobs[:] = 3
    outputs = [
        run(logits, sampling, isa=isa, num_threads=n, logprobs="raw", max_logprobs=3)[0]
        for n in (1, 2, 3)
    ]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output.sampled, outputs[0].sampled)
        np.testing.assert_array_equal(output.logprob_values, outputs[0].logprob_values)
    alone = draws(1, top_p=0.9, seed=41)
    alone.num_logprobs[:] = 3
    output, _, _ = run(logits[41:42], alone, isa=isa, logprobs="raw", max_logprobs=3)
    assert output.sampled[0] == outputs[0].sampled[41]
    np.testing.assert_array_equal(output.logprob_ids[0], outputs[0].logprob_ids[41])
    np.testing.assert_array_equal(output.logprob_values[0], outputs[0].logprob_values[41])


@each_isa
def test_sampled_tokens_go_to_their_state_rows(isa: str) -> None:
    logits = normal(4, 50)
    sampling = SamplingArrays(4)
    sampling.state_row[:] = [2, -1, 0, 3]
    sampling.target[3] = 7
    output, step, _ = run(logits, sampling, isa=isa)
    best = logits.argmax(1)
    assert output.sampled.tolist() == [*best[:3], 7]
    assert step.last_tokens[:4].tolist() == [best[2], 0, best[0], 0]


@each_isa
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bad_logits_fail_their_row_only(isa: str, temperature: float) -> None:
    logits = normal(5, 40)
    clean = logits.copy()
    logits[1, 33], logits[2], logits[3, 0] = np.nan, -INF, INF
    sampling = draws(5, temperature=temperature, top_p=0.9)
    sampling.num_logprobs[:] = 2
    sampling.state_row[:] = np.arange(5)
    output, step, _ = run(logits, sampling, isa=isa, logprobs="raw", max_logprobs=2)
    assert output.status.tolist() == [0, 1, 2, 1, 0]
    assert (output.logprob_ids[1:4] == -1).all()
    assert step.last_tokens[1:4].tolist() == [0, 0, 0]
    expected, _, _ = run(clean, sampling, isa=isa, logprobs="raw", max_logprobs=2)
    for row in (0, 4):
        assert output.sampled[row] == expected.sampled[row]
        np.testing.assert_array_equal(output.logprob_values[row], expected.logprob_values[row])


@each_isa
@pytest.mark.parametrize("bad", [np.nan, INF])
def test_one_bad_logit_fails_a_row_wherever_it_is(isa: str, bad: float) -> None:
    places = [0, 1023, 1024, 2048, 2999]
    logits = normal(len(places) + 1, 3000)
    logits[np.arange(len(places)), places] = bad
    logits[:, 500] = 60
    output, _, _ = run(logits, SamplingArrays(len(logits)), isa=isa)
    assert output.status.tolist() == [1] * len(places) + [0]


# ---- penalties and masks


@each_isa
def test_biases_then_penalties(isa: str) -> None:
    logits = normal(3, 20)
    expected = logits.copy()
    expected[0, 1] += 2.5
    expected[0, 5] = -INF
    expected[0, 19] -= 1
    expected[2, 2] += 4
    for row, seen, repetition, frequency, presence in [
        (0, [(1, 0), (4, 3)], 1.3, 0.5, 1.0),
        (2, [(0, 1), (2, 0), (3, 2)], 0.8, -0.25, 0.0),
    ]:
        for token, count in seen:
            value = expected[row, token]
            value = value / repetition if value > 0 else value * repetition
            expected[row, token] = value - (frequency * count + presence * (count > 0))
    _, _, got = run(logits, with_lists(SamplingArrays(3)), isa=isa)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def with_masks(sampling: SamplingArrays, allowed: npt.NDArray[np.bool_]) -> SamplingArrays:
    """A mask for each row, the last first."""
    num_rows, vocab_size = allowed.shape
    padded = np.zeros((num_rows, -(-vocab_size // 32) * 32), bool)
    padded[:, :vocab_size] = allowed[::-1]
    sampling.uses_masks = True
    sampling.mask_row[:num_rows] = np.arange(num_rows)[::-1]
    sampling.masks = np.packbits(padded, axis=1, bitorder="little").view(np.uint32)
    return sampling


@each_isa
@pytest.mark.parametrize("vocab_size", [1, 16, 31, 32, 33, 500])
def test_masked_tokens_are_never_taken(isa: str, vocab_size: int) -> None:
    logits = normal(3, vocab_size)
    allowed = np.random.default_rng(0).random((3, vocab_size)) < 0.4
    allowed[:, vocab_size // 2] = True
    sampling = with_masks(SamplingArrays(3), allowed)
    sampling.mask_row[1] = -1
    expected = np.where(allowed, logits, -INF)
    expected[1] = logits[1]
    output, _, got = run(logits, sampling, isa=isa)
    np.testing.assert_array_equal(output.sampled, expected.argmax(1))
    np.testing.assert_array_equal(got, logits)  # nobody else wants to see the mask
    sampling.min_p[:] = 0.5  # filters do
    output, _, got = run(logits, sampling, isa=isa)
    np.testing.assert_array_equal(output.sampled, expected.argmax(1))
    np.testing.assert_array_equal(got, expected)


@each_isa
@pytest.mark.parametrize("vocab_size", [33, 500, 3000])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_mask_has_the_same_bits_applied_when_drawn_and_written_before(
    isa: str, vocab_size: int, num_threads: int
) -> None:
    """Rows of few, of some and of nearly all tokens; those that report have it written."""
    rng = np.random.default_rng(vocab_size)
    logits = 3 * normal(48, vocab_size)
    shares = np.repeat([0.002, 0.1, 0.5, 0.98], 12)[:, None]
    allowed = rng.random((48, vocab_size)) < shares
    allowed[3, : vocab_size // 2] = False
    allowed[np.arange(48), rng.integers(vocab_size // 2, vocab_size, 48)] = True
    logits[~allowed & (rng.random(allowed.shape) < 0.01)] = np.nan  # no business of the row
    sampling = with_masks(draws(48, temperature=0.8), allowed)
    sampling.temperature[::7] = 0
    drawn, _, _ = run(logits, sampling, isa=isa, num_threads=num_threads)
    sampling.num_logprobs[:] = 0
    written, _, seen = run(
        logits, sampling, isa=isa, num_threads=num_threads, logprobs="processed", max_logprobs=0
    )
    np.testing.assert_array_equal(seen, np.where(allowed, logits, -INF))
    assert drawn.sampled.tolist() == written.sampled.tolist()
    assert drawn.status.tolist() == [0] * 48
    assert allowed[np.arange(48), drawn.sampled].all()
    one_row, _, _ = run(logits[5:6], with_masks(draws(1, temperature=0.8, seed=5), allowed[5:6]))
    assert one_row.sampled[0] == drawn.sampled[5]


@each_isa
def test_nothing_allowed_and_no_number_are_said(isa: str) -> None:
    logits = normal(3, 100)
    logits[1, 40] = np.nan
    logits[2, 40] = np.nan
    allowed = np.zeros((3, 100), bool)
    allowed[1, [3, 40]] = True
    allowed[2, 3] = True
    output, _, _ = run(logits, with_masks(draws(3), allowed), isa=isa)
    assert output.status.tolist() == [2, 1, 0]
    assert output.sampled.tolist() == [-1, -1, 3]


# ---- refusals


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("target", "target of row 1"),
        ("bias", "bias_ids"),
        ("seen", "seen_ids"),
        ("report", "report_ids"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(name: str, message: str) -> None:
    sampling = SamplingArrays(3)
    if name == "target":
        sampling.target[1] = 20
    elif name == "report":
        with_report_ids(sampling, [20], [], [])
    else:
        with_lists(sampling)
        setattr(sampling, f"{name}_ids", np.array([1, 4, 0, 20, 3], np.int32))
    with pytest.raises(EngineError, match=message):
        run(normal(3, 20), sampling)
