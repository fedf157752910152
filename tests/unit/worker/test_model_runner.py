"""Steps from the scheduler's words to tokens, over a network that notes its arrays."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.messages.step import GrammarMasks, NewRequestData, SchedulerOutput
from octavo.ops.step import SampleOutputArrays
from octavo.sample.logits_processor import LogitsProcessor, RequestLogitsProcessor
from octavo.sampling_params import SamplingParams
from octavo.worker.model_runner import StepAborted
from tests.fakes.fake_network import next_token
from tests.fakes.model_config import model_config
from tests.unit.worker.conftest import (
    BLOCK_SIZE,
    MAX_TOKENS,
    VOCAB_SIZE,
    Known,
    Rig,
    new,
    running,
)


def test_when_idle_the_network_hears_which_blocks_have_been_used(rig: Rig) -> None:
    rig.runner.idle()
    rig.step((new("a", [10, 11, 12, 13, 14], [7, 3]), 5))
    rig.runner.idle()
    assert rig.network.prefaults == [0, 8]


def test_a_prompt_is_laid_out_and_its_last_token_draws(rig: Rig) -> None:
    output = rig.step((new("a", [10, 11, 12, 13, 14], [7, 3]), 5))
    (seen,) = rig.network.steps
    assert seen.input_ids == [10, 11, 12, 13, 14]
    assert seen.positions == [0, 1, 2, 3, 4]
    assert seen.slot_mapping == [[28, 29, 30, 31, 12]]
    assert (seen.query_start, seen.seq_lens, seen.logit_rows) == ([0, 5], [5], [4])
    assert seen.block_tables[0][0][:2] == [7, 3]
    assert output.sampled_token_ids == {"a": [next_token(14, 4)]}
    assert output.failed is None


def test_a_drawn_token_is_the_next_input(rig: Rig) -> None:
    first = rig.step((new("a", [10, 11], [7]), 2)).sampled_token_ids["a"][0]
    second = rig.step((running("a", 2), 1))
    assert rig.network.steps[1].input_ids == [first]
    assert rig.network.steps[1].positions == [2]
    assert second.sampled_token_ids == {"a": [next_token(first, 2)]}


def test_a_step_may_be_prepared_before_the_token_it_continues_is_drawn() -> None:
    rig = Rig(num_batches=2)
    prompt = new("a", [10, 11], [7])
    first = rig.runner.prepare(SchedulerOutput([prompt], {}, {"a": 2}, 2, []))
    second = rig.runner.prepare(SchedulerOutput([], {}, {"a": 1}, 1, []))
    drawn = rig.runner.run(first).sampled_token_ids["a"][0]
    assert drawn == next_token(11, 1)
    assert rig.runner.run(second).sampled_token_ids == {"a": [next_token(drawn, 2)]}


def test_a_row_may_be_given_away_while_its_last_step_computes(rig: Rig) -> None:
    penalised = SamplingParams(temperature=0.0, repetition_penalty=1.5)
    old = new("old", [10, 11], [7], params=penalised)
    young = new("young", [20, 21], [8], params=penalised)
    first = rig.runner.prepare(SchedulerOutput([old], {}, {"old": 2}, 2, []))
    row = rig.states.row("old")
    second = rig.runner.prepare(SchedulerOutput([young], {}, {"young": 2}, 2, ["old"]))
    assert rig.states.row("young") == row
    rig.runner.run(first)
    assert second.batch.sampling.seen_ids.tolist() == [20, 21]
    assert rig.runner.run(second).sampled_token_ids == {"young": [next_token(21, 1)]}
    rig.runner.prepare(SchedulerOutput([], {}, {"young": 1}, 1, []))
    seen = rig.batches[0].sampling.seen_ids.tolist()
    assert sorted(seen) == sorted({20, 21, next_token(21, 1)})  # nothing of the old one


class Refuses(LogitsProcessor):
    """Fails with the first of some requests' tokens, and in its own way."""

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        error = (params.extra_args or {}).get("error")
        if error is not None:
            raise error("as asked")
        return None


@pytest.mark.parametrize("error", [ValueError, MemoryError, SystemExit])
def test_a_request_that_cannot_be_set_up_fails_alone(
    make_rig: Callable[..., Rig], error: type[BaseException]
) -> None:
    rig = make_rig(processors=[Refuses(model_config())])
    bad = SamplingParams(temperature=0.0, extra_args={"error": error})
    output = rig.step(
        (new("a", [10, 11], [1]), 2),
        (new("bad", [20, 21, 22], [2], params=bad), 2),
        (new("b", [30, 31], [3]), 2),
    )
    assert output.failed == {"bad": f"its sampling could not be set up: {error.__name__}: as asked"}
    assert output.sampled_token_ids["a"] == [next_token(11, 1)]
    assert output.sampled_token_ids["b"] == [next_token(31, 1)]
    output = rig.step((running("a", 2), 1), (running("b", 2), 1), finished=("bad",))
    assert output.failed is None
    assert len(rig.states) == 2


def test_an_unfinished_prompt_draws_nothing(rig: Rig) -> None:
    output = rig.step((new("a", [10, 11, 12, 13], [7]), 3))
    assert output.sampled_token_ids == {"a": []}
    assert rig.network.steps[0].logit_rows == []
    output = rig.step((running("a", 3), 1))
    assert output.sampled_token_ids == {"a": [next_token(13, 3)]}


def test_prefill_and_decode_mix_in_one_step(rig: Rig) -> None:
    drawn = rig.step((new("a", [10, 11], [1]), 2)).sampled_token_ids["a"][0]
    output = rig.step((running("a", 2), 1), (new("b", [20, 21, 22], [4]), 2))
    seen = rig.network.steps[1]
    assert seen.input_ids == [drawn, 20, 21]
    assert seen.query_start == [0, 1, 3]
    assert seen.seq_lens == [3, 2]
    assert output.sampled_token_ids["b"] == []
    assert len(output.sampled_token_ids["a"]) == 1


def test_a_cached_prefix_is_not_computed_again(rig: Rig) -> None:
    rig.step((new("a", [10, 11, 12, 13, 14, 15], [7, 3], num_computed_tokens=4), 2))
    (seen,) = rig.network.steps
    assert (seen.input_ids, seen.positions) == ([14, 15], [4, 5])
    assert seen.seq_lens == [6]


def test_a_step_without_tokens_only_forgets(rig: Rig) -> None:
    rig.step((new("a", [10], [1]), 1))
    output = rig.runner.execute_model(SchedulerOutput([], {}, {}, 0, ["a"]))
    assert output.sampled_token_ids == {}
    assert len(rig.network.steps) == 1
    assert len(rig.states) == 0


def test_every_group_has_its_own_slots(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(num_groups=2)
    data = NewRequestData("a", [1, 2], 2, SamplingParams(temperature=0.0), [[5], [9]], 0)
    rig.step((data, 2))
    assert rig.network.steps[0].slot_mapping == [[20, 21], [36, 37]]


@pytest.mark.parametrize(
    ("status", "words", "is_asked_for"),
    [
        (SampleOutputArrays.NAN, "not numbers", False),
        (SampleOutputArrays.NOTHING_ALLOWED, "every token was excluded", True),
    ],
)
def test_a_bad_row_fails_alone(rig: Rig, status: int, words: str, is_asked_for: bool) -> None:
    rig.network.row_to_status = {0: status}
    output = rig.step((new("a", [1], [1]), 1), (new("b", [2], [2]), 1))
    assert output.failed is not None
    assert list(output.failed) == ["a"]
    assert words in output.failed["a"]
    assert output.unservable == (["a"] if is_asked_for else None)
    assert output.sampled_token_ids == {"a": [], "b": [next_token(2, 0)]}


def test_logprobs_go_to_those_who_asked(rig: Rig) -> None:
    output = rig.step(
        (new("a", [1], [1], params=SamplingParams(temperature=0.0, logprobs=2)), 1),
        (new("b", [2], [2]), 1),
        (new("c", [3], [3], params=SamplingParams(temperature=0.0, logprobs=0)), 1),
    )
    assert output.logprobs is not None
    assert set(output.logprobs) == {"a", "c"}
    (entry,) = output.logprobs["a"]
    assert entry.token_ids == [next_token(1, 0), 0, 1]
    assert entry.logprobs == [0.0, -1.0, -2.0]
    assert entry.ranks == [1, 2, 3]
    assert output.logprobs["c"][0].token_ids == [next_token(3, 0)]
    assert output.prompt_logprobs is None


def test_prompt_logprobs_score_each_token_but_the_first(rig: Rig) -> None:
    params = SamplingParams(temperature=0.0, prompt_logprobs=1)
    first = rig.step((new("a", [10, 11, 12, 13], [1], params=params), 2))
    assert first.prompt_logprobs is not None
    assert first.prompt_logprobs["a"][0] is None
    assert [e.token_ids[0] for e in first.prompt_logprobs["a"][1:]] == [11, 12]
    assert first.sampled_token_ids == {"a": []}
    second = rig.step((running("a", 2), 2))
    assert second.prompt_logprobs is not None
    assert [e.token_ids[0] for e in second.prompt_logprobs["a"]] == [13]
    assert second.sampled_token_ids == {"a": [next_token(13, 3)]}
    assert second.logprobs is None
    assert rig.step((running("a", 4), 1)).prompt_logprobs is None


def test_a_prompt_of_one_token_has_nothing_to_score(rig: Rig) -> None:
    params = SamplingParams(temperature=0.0, prompt_logprobs=1)
    output = rig.step((new("a", [10], [1], params=params), 1))
    assert output.prompt_logprobs == {"a": [None]}


def test_a_resumed_request_does_not_report_its_prompt_again(rig: Rig) -> None:
    params = SamplingParams(temperature=0.0, prompt_logprobs=1)
    resumed = new("a", [10, 11, 50], [1], num_prompt_tokens=2, params=params)
    assert rig.step((resumed, 2)).prompt_logprobs is None
    output = rig.step((running("a", 2), 1))
    assert output.prompt_logprobs is None
    assert output.sampled_token_ids == {"a": [next_token(50, 2)]}


def test_generated_tokens_come_before_those_of_prompts(rig: Rig) -> None:
    """Whatever order the scheduler has; what comes out goes to whom it belongs."""
    asks = SamplingParams(temperature=0.0, prompt_logprobs=0, logprobs=0)
    drawn = rig.step(
        (new("long", [10, 11, 12, 13, 14, 15], [1, 2], params=asks), 3),
        (new("b", [20], [3]), 1),
    ).sampled_token_ids["b"][0]
    resumed = new("c", [30, 31, 32], [4], num_prompt_tokens=1, num_computed_tokens=1)
    output = rig.step((running("long", 3), 3), (running("b", 1), 1), (resumed, 2))
    seen = rig.network.steps[1]
    assert seen.num_generated == 3
    assert seen.input_ids == [drawn, 31, 32, 13, 14, 15]
    assert seen.positions == [1, 1, 2, 3, 4, 5]
    assert (seen.query_start, seen.seq_lens) == ([0, 1, 3, 6], [2, 3, 6])
    assert [table[0] for table in seen.block_tables[0]] == [3, 4, 1]
    assert seen.slot_mapping == [[13, 17, 18, 7, 8, 9]]
    assert output.sampled_token_ids == {
        "long": [next_token(15, 5)],
        "b": [next_token(drawn, 1)],
        "c": [next_token(32, 2)],
    }
    assert output.prompt_logprobs is not None
    assert [entry.token_ids for entry in output.prompt_logprobs["long"] if entry] == [[14], [15]]
    assert output.logprobs is not None
    assert output.logprobs["long"][0].token_ids == [next_token(15, 5)]


def test_a_step_of_one_kind_keeps_the_order_of_the_scheduler(rig: Rig) -> None:
    rig.step((new("a", [10], [1]), 1), (new("b", [20, 21], [2]), 2), (new("c", [30], [3]), 1))
    assert rig.network.steps[0].num_generated == 0
    assert rig.network.steps[0].input_ids == [10, 20, 21, 30]
    for number in range(2):  # the second one is moved on
        rig.step((running("c", 1 + number), 1), (running("a", 1 + number), 1))
        seen = rig.network.steps[1 + number]
        assert seen.num_generated == 2
        assert [table[0] for table in seen.block_tables[0]] == [3, 1]
    resumed = new("d", [40, 41, 42, 43], [4, 5], num_prompt_tokens=1, num_computed_tokens=1)
    rig.step((resumed, 2), (running("b", 2), 1))
    assert rig.network.steps[3].num_generated == 3


def test_masks_of_grammars_go_to_the_rows_of_their_requests(rig: Rig) -> None:
    """The scheduler's order is not that of the arrays: the prompt comes behind."""
    first = SchedulerOutput([new("b", [20], [2])], {}, {"b": 1}, 1, [])
    rig.runner.execute_model(first)
    scheduled = SchedulerOutput([new("a", [10], [1])], {}, {"a": 1, "b": 1}, 2, [], ["a", "b"])
    batch = rig.runner.prepare(scheduled).batch
    assert batch.request_ids == ["b", "a"]
    words = np.arange(2 * (-(-VOCAB_SIZE // 32)), dtype=np.uint32)
    batch.set_grammar_masks(GrammarMasks(memoryview(words.tobytes()), [0, 0]))
    of_a, of_b = words.reshape(2, -1)
    rows = batch.sampling.masks[batch.sampling.mask_row[:2]]
    np.testing.assert_array_equal(rows, [of_b, of_a])


def test_masks_of_grammars_change_in_steps_that_only_move_on() -> None:
    rig = Rig(num_batches=1)
    first = SchedulerOutput(
        [new("a", [10], [1]), new("b", [20], [2])], {}, {"a": 1, "b": 1}, 2, [], ["a", "b"]
    )
    rig.runner.execute_model(first)
    num_words = -(-VOCAB_SIZE // 32)
    for number, names in enumerate((["a", "b"], ["a", "b"], ["b"])):
        scheduled = SchedulerOutput([], {}, {"a": 1, "b": 1}, 2, [], names)
        prepared = rig.runner.prepare(scheduled)
        batch = prepared.batch
        masks = {name: np.full(num_words, 7 + number, np.uint32) * ord(name) for name in names}
        if names:
            words = memoryview(np.concatenate([*masks.values()]).tobytes())
            batch.set_grammar_masks(GrammarMasks(words, [0] * len(names)))
        assert batch.request_ids == ["a", "b"]
        assert batch.sampling.uses_masks == bool(names)
        for row, name in zip(batch.sampling.mask_row[:2], "ab", strict=True):
            if name in names:
                np.testing.assert_array_equal(batch.sampling.masks[row], masks[name])
            elif names:
                assert row == -1
        rig.runner.run(prepared)
        assert batch.step.positions[:2].tolist() == [1 + number] * 2


def test_a_step_does_not_cross_the_end_of_a_prompt(rig: Rig) -> None:
    resumed = new("a", [10, 11, 50], [1], num_prompt_tokens=2)
    with pytest.raises(AssertionError, match="prompt tokens and generated ones"):
        rig.step((resumed, 3))


def test_an_aborted_step_has_no_result(rig: Rig) -> None:
    rig.runner.abort()
    with pytest.raises(StepAborted):
        rig.step((new("a", [1], [1]), 1))


@given(
    prompts=st.lists(
        st.lists(st.integers(0, 999), min_size=1, max_size=20), min_size=1, max_size=4
    ),
    schedule=st.integers(0, 2**32).map(Random),
)
def test_chunks_and_company_do_not_change_what_is_drawn(
    prompts: list[list[int]], schedule: Random
) -> None:
    """Any way to cut prompts into steps gives each request the tokens it would get alone, also if
    it is taken out and comes back; and each token stands where those of its kind do."""
    rig, num_outputs = Rig(), 3
    blocks = {n: list(range(n * 16, n * 16 + 16)) for n in range(len(prompts))}
    computed = dict.fromkeys(range(len(prompts)), 0)
    generated: dict[int, list[int]] = {n: [] for n in computed}
    known: set[int] = set()
    while any(len(tokens) < num_outputs for tokens in generated.values()):
        parts: list[tuple[NewRequestData | Known, int]] = []
        budget, gone = MAX_TOKENS, [n for n in known if schedule.random() < 0.1]
        known.difference_update(gone)
        computed.update(dict.fromkeys(gone, 0))
        for n, prompt in schedule.sample([*enumerate(prompts)], len(prompts)):
            if len(generated[n]) == num_outputs or schedule.random() < 0.3:
                continue
            left = len(prompt) - computed[n]
            left = left if left > 0 else left + len(generated[n])
            count = min(schedule.randint(1, left), budget)
            if count == 0:
                continue
            budget -= count
            tokens = prompt + generated[n]
            resumed = new(str(n), tokens, blocks[n], num_prompt_tokens=len(prompt))
            parts.append((running(str(n), computed[n]) if n in known else resumed, count))
            known.add(n)
            computed[n] += count
        output = rig.step(*parts, finished=tuple(map(str, gone)))
        for name, tokens in output.sampled_token_ids.items():
            generated[int(name)] += tokens
    for n, prompt in enumerate(prompts):
        expected, last = [], prompt[-1]
        for index in range(num_outputs):
            last = next_token(last, len(prompt) - 1 + index)
            expected.append(last)
        assert generated[n] == expected
    for seen in rig.network.steps:
        for request, (start, end) in enumerate(
            zip(seen.query_start[:-1], seen.query_start[1:], strict=True)
        ):
            table = seen.block_tables[0][request]
            num_prompt_tokens = len(prompts[table[0] // 16])  # of whom the blocks belong to
            for token in range(start, end):
                position = seen.positions[token]
                assert (token < seen.num_generated) is (position >= num_prompt_tokens)
                slot = table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
                assert seen.slot_mapping[0][token] == slot
