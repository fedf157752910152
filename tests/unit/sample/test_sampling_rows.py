"""The sampling arrays of a step."""

from __future__ import annotations

import numpy as np

from octavo.messages.step import GrammarMasks
from octavo.ops.step import SamplingArrays
from octavo.sample.sampling_rows import SamplingRows
from octavo.sample.seed import request_seed
from octavo.sample.token_mask import allowed_token_mask
from octavo.sampling_params import SamplingParams

VOCAB = 40


def rows_with(*params: SamplingParams) -> SamplingRows:
    """Row n holds the n-th parameters, with prompt [1, 2] and nothing generated."""
    rows = SamplingRows(max_requests=8, vocab_size=VOCAB, engine_seed=3)
    for row, each in enumerate(params):
        rows.add(
            row,
            f"request-{row}",
            each,
            prompt_token_ids=[1, 2],
            output_token_ids=[],
            eos_token_ids=[0],
        )
    return rows


def fill(rows: SamplingRows, *order: int, targets=None, grammar=None) -> tuple[SamplingArrays, int]:
    arrays = SamplingArrays(16)
    most = rows.fill(
        arrays,
        np.array(order, np.int32),
        output_index=np.zeros(len(order), np.int32),
        targets=None if targets is None else np.array(targets, np.int32),
        grammar_rows=list(grammar or ()),
    )
    if grammar:
        words = memoryview(np.concatenate(list(grammar.values())).tobytes())
        arrays.set_grammars(GrammarMasks(words, [0] * len(grammar)), len(order))
    return arrays, most


def test_numbers_are_gathered_in_the_order_of_the_step() -> None:
    rows = rows_with(
        SamplingParams(temperature=0.5, top_p=0.9, seed=5),
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.5, top_k=7, min_p=0.1),
    )
    arrays, most = fill(rows, 2, 0)
    assert arrays.temperature[:2].tolist() == [1.5, 0.5]
    assert arrays.top_k[:2].tolist() == [7, 0]
    assert arrays.top_p[:2].tolist() == [1.0, np.float32(0.9)]
    assert arrays.min_p[:2].tolist() == [np.float32(0.1), 0.0]
    assert arrays.seed[:2].tolist() == [request_seed(None, 3, "request-2"), 5]
    assert arrays.state_row[:2].tolist() == [2, 0]
    assert arrays.target[:2].tolist() == [-1, -1]
    assert most == -1


def test_plain_requests_use_no_lists() -> None:
    arrays, _ = fill(rows_with(SamplingParams()), 0)
    assert [arrays.uses_penalties, arrays.uses_bias, arrays.uses_masks] == [False] * 3


def test_lists_are_those_of_their_rows_only() -> None:
    rows = rows_with(
        SamplingParams(presence_penalty=1.0),
        SamplingParams(),
        SamplingParams(frequency_penalty=0.5, logit_bias={9: 2.0}),
    )
    arrays, _ = fill(rows, 1, 2, 0)
    histories = rows.histories(arrays, np.array([1, 2, 0], np.int32))
    assert sorted(histories) == [1, 2]
    for _ in range(2):
        for history in histories[1]:
            history.append(9)
    arrays, _ = fill(rows, 1, 2, 0)
    assert arrays.uses_penalties
    assert arrays.seen_offsets[:4].tolist() == [0, 0, 3, 5]
    assert dict(
        zip(arrays.seen_ids[:3].tolist(), arrays.seen_counts[:3].tolist(), strict=True)
    ) == {
        1: 0,
        2: 0,
        9: 2,
    }
    assert arrays.presence_penalty[:3].tolist() == [0, 0, 1]
    assert arrays.frequency_penalty[:3].tolist() == [0, 0.5, 0]
    assert arrays.bias_offsets[:4].tolist() == [0, 0, 1, 1]
    assert (arrays.bias_ids.tolist(), arrays.bias_values.tolist()) == ([9], [2.0])


def test_masks_of_allowed_ids_and_of_a_grammar_are_joined() -> None:
    rows = rows_with(SamplingParams(allowed_token_ids=[3, 4]), SamplingParams(), SamplingParams())
    grammar = {0: allowed_token_mask([4, 5], VOCAB), 2: allowed_token_mask([6], VOCAB)}
    arrays, _ = fill(rows, 0, 1, 2, grammar=grammar)
    assert arrays.uses_masks
    of_first, of_second, of_third = arrays.mask_row[:3]
    assert of_second == -1
    assert arrays.masks[of_first].tolist() == allowed_token_mask([4], VOCAB).tolist()
    assert arrays.masks[of_third].tolist() == allowed_token_mask([6], VOCAB).tolist()


def test_matchers_stand_at_the_rows_of_their_requests_beside_masks() -> None:
    own = SamplingParams(allowed_token_ids=[3, 4])
    rows = rows_with(own, SamplingParams(), own, SamplingParams())
    arrays = SamplingArrays(16)
    rows.fill(
        arrays,
        np.array([3, 0, 1, 2], np.int32),
        output_index=np.zeros(4, np.int32),
        targets=None,
        grammar_rows=[0, 1, 3],
    )
    for repeated in range(2):  # a step that moves on sets grammars again
        words = memoryview(allowed_token_mask([4, 5], VOCAB).tobytes())
        arrays.set_grammars(GrammarMasks(words, [0, 70, 80], (7, 8)), 4)
        assert arrays.matchers[:4].tolist() == [80, 0, 70, 0], repeated
        assert (arrays.uses_matchers, arrays.matcher_calls) == (True, (7, 8))
        assert [row >= 0 for row in arrays.mask_row[:4]] == [False, True, False, True]
        both, alone = arrays.masks[arrays.mask_row[1]], arrays.masks[arrays.mask_row[3]]
        assert both.tolist() == allowed_token_mask([4], VOCAB).tolist()
        assert alone.tolist() == allowed_token_mask([3, 4], VOCAB).tolist()
        arrays.set_grammars(GrammarMasks(memoryview(b""), [60, 70, 80], (7, 8)), 4)
        assert arrays.matchers[:4].tolist() == [80, 60, 70, 0]
        assert arrays.masks[arrays.mask_row[1]].tolist() == alone.tolist()


def test_prompt_rows_report_and_change_nothing() -> None:
    rows = rows_with(SamplingParams(prompt_logprobs=3, logprobs=1, logit_bias={5: 9.0}))
    arrays, most = fill(rows, 0, 0, targets=[8, -1])
    assert arrays.target[:2].tolist() == [8, -1]
    assert arrays.state_row[:2].tolist() == [-1, 0]
    assert arrays.num_logprobs[:2].tolist() == [3, 1]
    assert arrays.bias_offsets[:3].tolist() == [0, 0, 1]
    assert most == 3


def test_all_logprobs_are_the_whole_vocabulary() -> None:
    assert fill(rows_with(SamplingParams(logprobs=-1)), 0)[1] == VOCAB


def test_a_removed_row_leaves_nothing_to_its_successor() -> None:
    rows = rows_with(
        SamplingParams(presence_penalty=1.0, logit_bias={1: 1.0}, allowed_token_ids=[1])
    )
    rows.remove(0)
    rows.add(
        0,
        "next",
        SamplingParams(),
        prompt_token_ids=[1],
        output_token_ids=[],
        eos_token_ids=[],
    )
    arrays, _ = fill(rows, 0)
    assert [arrays.uses_penalties, arrays.uses_bias, arrays.uses_masks] == [False] * 3


def test_tokens_generated_before_a_preemption_count() -> None:
    rows = SamplingRows(max_requests=1, vocab_size=VOCAB, engine_seed=0)
    rows.add(
        0,
        "resumed",
        SamplingParams(min_tokens=2, presence_penalty=1.0),
        prompt_token_ids=[1],
        output_token_ids=[5, 6],
        eos_token_ids=[0],
    )
    arrays, _ = fill(rows, 0)
    assert not arrays.uses_bias
    assert sorted(arrays.seen_ids.tolist()) == [1, 5, 6]


def test_asked_ids_lie_beside_the_rows_that_draw_and_make_their_count() -> None:
    rows = rows_with(
        SamplingParams(logprob_token_ids=[9, 4]), SamplingParams(logprobs=1), SamplingParams()
    )
    arrays, most = fill(rows, 1, 0, 2, 0, targets=[-1, -1, -1, 5])
    assert arrays.uses_report_ids
    assert arrays.report_offsets[:5].tolist() == [0, 0, 2, 2, 2]
    assert arrays.report_ids.tolist() == [9, 4]
    assert arrays.num_logprobs[:3].tolist() == [1, 2, -1]
    assert most == 2
    arrays, _ = fill(rows, 1, 2)
    assert not arrays.uses_report_ids
    rows.remove(0)
    assert not fill(rows, 0)[0].uses_report_ids
