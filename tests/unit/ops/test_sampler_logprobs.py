"""Log-probabilities and logits that the native sampler reports."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.ops.library import available_isas
from octavo.ops.step import SamplingArrays
from tests.fakes.sampler_rig import (
    INF,
    draws,
    kept_probabilities,
    log_softmax,
    normal,
    run,
    with_lists,
    with_report_ids,
)

each_isa = pytest.mark.parametrize("isa", available_isas())


@each_isa
@pytest.mark.parametrize("vocab_size", [1, 20, 3000, 49152])
def test_raw_logprobs_of_greedy_rows(isa: str, vocab_size: int) -> None:
    logits = normal(3, vocab_size)
    sampling = SamplingArrays(3)
    sampling.num_logprobs[:] = [20, -1, 0]
    output, _, _ = run(logits, sampling, isa=isa, logprobs="raw", max_logprobs=20)
    count = min(20, vocab_size)
    expected = log_softmax(logits[0])
    order = np.argsort(-expected, kind="stable")[:count]
    assert output.logprob_ids[0].tolist() == [order[0], *order, *[-1] * (20 - count)]
    np.testing.assert_allclose(
        output.logprob_values[0, : count + 1], expected[[order[0], *order]], atol=3e-6
    )
    assert output.logprob_ranks[0, : count + 1].tolist() == [1, *range(1, count + 1)]
    assert output.logprob_ids[2].tolist() == [logits[2].argmax(), *[-1] * 20]
    np.testing.assert_allclose(output.logprob_values[2, 0], log_softmax(logits[2]).max(), atol=3e-6)


@each_isa
def test_raw_logprobs_are_of_the_logits_before_penalties_and_masks(isa: str) -> None:
    logits = normal(3, 20)
    sampling = with_lists(draws(3))
    sampling.num_logprobs[:] = 20
    output, _, processed = run(logits, sampling, isa=isa, logprobs="raw", max_logprobs=20)
    assert not np.array_equal(processed, logits)
    for row in range(3):
        expected = log_softmax(logits[row])
        chosen = int(output.sampled[row])
        assert output.logprob_ids[row, 0] == chosen
        np.testing.assert_allclose(output.logprob_values[row, 0], expected[chosen], atol=2e-6)
        assert output.logprob_ranks[row, 0] == 1 + (logits[row] > logits[row, chosen]).sum()
        np.testing.assert_allclose(
            output.logprob_values[row, 1:], expected[output.logprob_ids[row, 1:]], atol=2e-6
        )


@each_isa
def test_equally_likely_tokens_are_listed_by_rising_id(isa: str) -> None:
    logits = np.zeros((2, 5000), np.float32)
    logits[1, 4000:] = 1
    sampling = SamplingArrays(2)
    sampling.num_logprobs[:] = 5
    output, _, _ = run(logits, sampling, isa=isa, logprobs="raw", max_logprobs=5)
    assert output.logprob_ids.tolist() == [
        [0, 0, 1, 2, 3, 4],
        [4000, 4000, 4001, 4002, 4003, 4004],
    ]


@each_isa
def test_rising_logits_fill_the_list_again_and_again(isa: str) -> None:
    logits = np.linspace(-1, 1, 30_000, dtype=np.float32)[None]
    sampling = SamplingArrays(1)
    sampling.num_logprobs[:] = 7
    output, _, _ = run(logits, sampling, isa=isa, logprobs="raw", max_logprobs=7)
    assert output.logprob_ids[0, 1:].tolist() == list(range(29_999, 29_992, -1))


@each_isa
def test_the_whole_vocabulary_can_be_listed(isa: str) -> None:
    logits = normal(1, 3000)
    sampling = SamplingArrays(1)
    sampling.num_logprobs[:] = 3000
    output, _, _ = run(logits, sampling, isa=isa, logprobs="raw", max_logprobs=3000)
    order = np.argsort(-logits[0], kind="stable")
    np.testing.assert_array_equal(output.logprob_ids[0, 1:], order)
    np.testing.assert_allclose(np.exp(output.logprob_values[0, 1:].astype(float)).sum(), 1, 1e-5)


@each_isa
@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_a_target_is_reported_and_not_drawn(isa: str, mode: str) -> None:
    logits = normal(40, 300)
    sampling = draws(40)
    sampling.target[:] = np.arange(40) * 7
    sampling.num_logprobs[:] = 1
    output, _, _ = run(logits, sampling, isa=isa, logprobs=mode, max_logprobs=1)
    for row in range(40):
        expected = log_softmax(logits[row])
        target, best = row * 7, int(expected.argmax())
        assert output.sampled[row] == target
        assert output.logprob_ids[row].tolist() == [target, best]
        np.testing.assert_allclose(output.logprob_values[row], expected[[target, best]], atol=2e-6)
        rank = 1 + (logits[row] > logits[row, target]).sum()
        assert output.logprob_ranks[row].tolist() == [rank, 1]


@each_isa
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (4, 1.0), (0, 0.7)])
def test_processed_logprobs_are_of_the_distribution_drawn_from(
    isa: str, top_k: int, top_p: float
) -> None:
    logits = normal(6, 60, scale=2)
    sampling = with_lists(draws(6, temperature=0.7, top_k=top_k, top_p=top_p))
    sampling.bias_offsets[4:], sampling.seen_offsets[4:] = 4, 5
    sampling.num_logprobs[:] = 6
    output, _, processed = run(logits, sampling, isa=isa, logprobs="processed", max_logprobs=6)
    for row in range(6):
        probabilities = kept_probabilities(processed[row], 0.7, top_k, top_p, 0.0)
        ids = output.logprob_ids[row, 1:]
        count = min(6, int((probabilities > 0).sum()))
        # cut-off ids follow the kept ones, by rising id
        order = np.lexsort((np.arange(60), -probabilities))[:6]
        assert ids.tolist() == order.tolist()
        assert (output.logprob_values[row, count + 1 :] == -INF).all()
        np.testing.assert_allclose(
            output.logprob_values[row, 1 : count + 1],
            np.log(probabilities[order[:count]]),
            atol=5e-6,
        )
        chosen = output.logprob_ids[row, 0]
        assert chosen == output.sampled[row]
        np.testing.assert_allclose(
            output.logprob_values[row, 0], np.log(probabilities[chosen]), atol=5e-6
        )


@each_isa
def test_processed_logprobs_of_greedy_rows_have_no_temperature(isa: str) -> None:
    logits = normal(3, 20)
    sampling = with_lists(SamplingArrays(3))
    sampling.num_logprobs[:] = 1
    output, _, processed = run(logits, sampling, isa=isa, logprobs="processed", max_logprobs=1)
    for row in range(3):
        expected = log_softmax(processed[row]).max()
        np.testing.assert_allclose(output.logprob_values[row], [expected, expected], atol=2e-6)


@each_isa
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_raw_logits_are_those_before_penalties_and_masks(isa: str, temperature: float) -> None:
    logits = normal(3, 20)
    sampling = with_lists(draws(3, temperature=temperature, top_k=3))
    sampling.num_logprobs[:] = 4
    output, _, _ = run(logits, sampling, isa=isa, logprobs="raw", as_logits=True, max_logprobs=4)
    for row in range(3):
        ids = output.logprob_ids[row]
        assert ids[1:].tolist() == np.argsort(-logits[row], kind="stable")[:4].tolist()
        np.testing.assert_array_equal(output.logprob_values[row], logits[row, ids])


@each_isa
def test_processed_logits_are_those_drawn_from(isa: str) -> None:
    logits = normal(3, 20)
    sampling = with_lists(draws(3, temperature=0.5, top_k=3))
    sampling.temperature[1] = 0  # greedy rows have no temperature
    sampling.num_logprobs[:] = 5
    output, _, processed = run(
        logits, sampling, isa=isa, logprobs="processed", as_logits=True, max_logprobs=5
    )
    for row in (0, 2):
        ids = output.logprob_ids[row]
        best = np.argsort(-processed[row], kind="stable")[:3]
        assert ids[1:4].tolist() == best.tolist()
        np.testing.assert_allclose(output.logprob_values[row, 1:4], processed[row, best] / 0.5)
        np.testing.assert_array_equal(output.logprob_values[row, 4:], -INF)  # cut off by top-k
        assert output.logprob_values[row, 0] == np.float32(processed[row, ids[0]] / 0.5)
    np.testing.assert_array_equal(output.logprob_values[1], processed[1, output.logprob_ids[1]])


@each_isa
@pytest.mark.parametrize("mode", ["raw", "processed"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_asked_ids_are_reported_instead_of_the_likeliest(
    isa: str, mode: str, temperature: float
) -> None:
    logits = normal(3, 300)
    asked = [[299, 0, 7], [], [5]]
    sampling = with_report_ids(draws(3, temperature=temperature), *asked)
    output, _, _ = run(logits, sampling, isa=isa, logprobs=mode, max_logprobs=3)
    for row, ids in enumerate(asked):
        expected = log_softmax(logits[row])
        chosen = int(output.sampled[row])
        wanted = [chosen, *(ids or np.argsort(-expected, kind="stable")[:2])]
        assert output.logprob_ids[row, : len(wanted)].tolist() == wanted
        np.testing.assert_allclose(
            output.logprob_values[row, : len(wanted)], expected[wanted], atol=3e-6
        )
        ranks = [1 + int((logits[row] > logits[row, i]).sum()) for i in wanted]
        assert output.logprob_ranks[row, : len(wanted)].tolist() == ranks
        assert (output.logprob_ids[row, len(wanted) :] == -1).all()


@each_isa
def test_asked_ids_that_were_cut_off_come_after_those_that_were_not(isa: str) -> None:
    logits = np.array([[3, 2, 1, 0]], np.float32)
    sampling = with_report_ids(draws(1, top_k=2), [3, 1, 0])
    output, _, _ = run(logits, sampling, isa=isa, logprobs="processed", max_logprobs=3)
    expected = log_softmax(logits[0, :2])
    assert output.logprob_ids[0, 1:].tolist() == [3, 1, 0]
    np.testing.assert_allclose(
        output.logprob_values[0, 1:], [-INF, expected[1], expected[0]], rtol=1e-6
    )
    assert output.logprob_ranks[0, 1:].tolist() == [3, 2, 1]


@each_isa
def test_prompt_rows_report_the_likeliest_whatever_is_asked_beside_them(isa: str) -> None:
    logits = normal(2, 50)
    sampling = with_report_ids(draws(2), [], [9])
    sampling.target[0] = 4
    output, _, _ = run(logits, sampling, isa=isa, logprobs="raw", max_logprobs=2)
    best = np.argsort(-logits[0], kind="stable")[:2]
    assert output.logprob_ids[0].tolist() == [4, *best]
