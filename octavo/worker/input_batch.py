"""One step of the scheduler as arrays: what the forward and sample segments read.

Requests that compute generated tokens come first, then those that compute tokens of their prompts;
within each kind the scheduler's order stays. Most steps have one kind only, or come in this order.

Everything is gathered with numpy from the request rows into arrays that are allocated once; the
Python work per step grows with the requests, not with their tokens.

There are as many batches as steps on their way at the same time, over the same rows: one is
prepared while another computes.

Runs in: workers. Owns: the step arrays. Knows nothing of: devices, models, queues.
"""

from __future__ import annotations

import numpy as np

from octavo.messages.step import GrammarMasks, SchedulerOutput
from octavo.ops.step import Int32Array, SamplingArrays, StepArrays
from octavo.sample.sampling_rows import TokenHistory
from octavo.worker.request_states import RequestStates

_ONE = np.uint64(1)


class InputBatch:
    """One step.

    Attributes:
        step: inputs of the forward segment.
        sampling: inputs of the sample segment.
        request_ids: [R] the requests in the order of the arrays.
        rows: [R] their rows.
        logit_requests: [L] index into `request_ids` of each logit row.
        targets: [L] the prompt token a logit row reports, -1: it draws a token. None: all draw.
        histories: per logit row that draws for a request whose sampling looks back, who must hear
            of the token.
        max_logprobs: most log-probabilities any row reports, -1: none does.
        prompt_starts: requests (indices) that report prompt tokens and compute position 0 now.
    """

    def __init__(
        self, states: RequestStates, *, max_tokens: int, max_requests: int, block_size: int
    ) -> None:
        num_groups, _, max_blocks = states.block_tables.shape
        self._states = states
        self._block_size = block_size
        self.step = StepArrays(
            max_tokens=max_tokens,
            max_requests=max_requests,
            num_groups=num_groups,
            max_blocks=max_blocks,
            last_tokens=states.last_tokens,
        )
        self.sampling = SamplingArrays(max_tokens)
        self.request_ids: list[str] = []
        self.rows: Int32Array = np.zeros(0, np.int32)
        self.logit_requests: Int32Array = np.zeros(0, np.int32)
        self.targets: Int32Array | None = None
        self.histories: dict[int, list[TokenHistory]] = {}
        self.max_logprobs = -1
        self.prompt_starts: list[int] = []
        self._is_drawn_only = False  # every token of the step was drawn by the backend
        self._num_repeats = 0  # of the last step, one token on each time
        self._prepared_as = 0  # number of the last step that may be repeated
        self._grammar_request_ids: list[str] = []
        self._num_tokens_after: Int32Array = np.zeros(0, np.int32)  # [R] drawn ones included
        self._token_index: Int32Array = np.arange(max_tokens + 1, dtype=np.int32)
        self._request_index: Int32Array = np.arange(max_requests, dtype=np.int32)

    @property
    def is_plain(self) -> bool:
        """True if the step only draws: no log-probabilities, and nobody looks back."""
        return self.targets is None and self.max_logprobs < 0 and not self.histories

    def prepare(self, scheduled: SchedulerOutput) -> None:
        """Fills the arrays for one step; `states` has been updated with it."""
        self._states.num_prepared += 1
        if self._continues(scheduled):
            self._advance()
            return
        self._states.settle()
        num_computed, num_scheduled = self._order(scheduled)
        self._fill_tokens(num_computed, num_scheduled, scheduled.total_num_scheduled_tokens)
        self._choose_logit_rows(num_scheduled)
        self._fill_sampling(scheduled)
        seq_lens = self.step.seq_lens[: len(self.rows)]
        self._states.advance(self.rows, seq_lens, self._num_tokens_after)
        self._expect_continuation(scheduled)

    def _expect_continuation(self, scheduled: SchedulerOutput) -> None:
        """How many of the next steps may only move everything one token on: until a request
        reaches the end of a block."""
        step = self.step
        self._num_repeats = 0
        if (
            step.num_tokens == step.num_requests == step.num_logits
            and self.targets is None
            and not self.histories
            and self._is_drawn_only
        ):
            offset = int((step.positions[: step.num_tokens] % self._block_size).max(initial=0))
            self._num_repeats = self._block_size - 1 - offset
            self._prepared_as = self._states.num_prepared
            self._grammar_request_ids = scheduled.grammar_request_ids

    def _continues(self, scheduled: SchedulerOutput) -> bool:
        """True if the step is the one that was prepared last, by this batch, one token on."""
        return (
            self._num_repeats > 0
            and self._prepared_as == self._states.num_prepared - 1
            and scheduled.total_num_scheduled_tokens == len(self.request_ids)
            and scheduled.grammar_request_ids == self._grammar_request_ids
            and not (scheduled.new_requests or scheduled.finished_request_ids)
            and not scheduled.new_block_ids
            and list(scheduled.num_scheduled_tokens) == self.request_ids
        )

    def _advance(self) -> None:
        """Moves every request one token on, in the block where it is: all else stays."""
        self._num_repeats -= 1
        self._prepared_as += 1
        step, count = self.step, self.step.num_requests
        step.advance()
        output_index = self.sampling.output_index[:count]
        output_index += _ONE
        self._states.advance_later(self.rows, step.seq_lens[:count])

    def _order(self, scheduled: SchedulerOutput) -> tuple[Int32Array, Int32Array]:
        """Brings the requests in order.

        Returns:
            [R] tokens of each that are computed before the step, [R] those it computes.
        """
        states, counts = self._states, scheduled.num_scheduled_tokens
        self.request_ids = list(counts)
        self.rows = rows = states.rows(self.request_ids)
        num_scheduled: Int32Array = np.fromiter(counts.values(), np.int32, len(rows))
        num_computed = states.num_computed_tokens[rows]
        self._is_drawn_only = bool((num_computed >= states.num_given_tokens[rows]).all())
        if self._is_drawn_only:
            self.step.num_generated = scheduled.total_num_scheduled_tokens
            return num_computed, num_scheduled
        num_prompt = states.num_prompt_tokens[rows]
        is_generated = num_computed >= num_prompt
        assert (is_generated | (num_computed + num_scheduled <= num_prompt)).all(), (
            "a request has prompt tokens and generated ones in the same step"
        )
        num_first = int(np.count_nonzero(is_generated))
        if not is_generated[:num_first].all():
            order = np.argsort(~is_generated, kind="stable")
            self.request_ids = [self.request_ids[index] for index in order.tolist()]
            self.rows = rows[order]
            num_computed, num_scheduled = num_computed[order], num_scheduled[order]
        self.step.num_generated = int(num_scheduled[:num_first].sum())
        return num_computed, num_scheduled

    def _fill_tokens(
        self, num_computed: Int32Array, num_scheduled: Int32Array, num_tokens: int
    ) -> None:
        states, step, rows = self._states, self.step, self.rows
        num_requests = len(rows)
        step.num_requests, step.num_tokens = num_requests, num_tokens
        np.add(num_computed, num_scheduled, out=step.seq_lens[:num_requests])
        positions = step.positions[:num_tokens]
        if num_tokens == num_requests:  # all decode
            row_of_token = rows
            step.query_start[: num_requests + 1] = self._token_index[: num_requests + 1]
            positions[:] = num_computed
        else:
            np.cumsum(num_scheduled, out=step.query_start[1 : num_requests + 1])
            # [T] request of each token, as index of the step and as row
            request_of_token = np.repeat(self._request_index[:num_requests], num_scheduled)
            row_of_token = rows[request_of_token]
            np.subtract(
                self._token_index[:num_tokens],
                (step.query_start[:num_requests] - num_computed)[request_of_token],
                out=positions,
            )
        self._fill_input_ids(row_of_token, positions)
        block_of_token = positions // self._block_size
        num_blocks = -(-int(step.seq_lens[:num_requests].max(initial=0)) // self._block_size)
        for group, table in enumerate(states.block_tables):
            step.block_tables[group, :num_requests, :num_blocks] = table[rows, :num_blocks]
            # slot = block_id * block_size + position - block_of_token * block_size
            slots = step.slot_mapping[group, :num_tokens]
            np.subtract(table[row_of_token, block_of_token], block_of_token, out=slots)
            slots *= self._block_size
            slots += positions

    def _fill_input_ids(self, row_of_token: Int32Array, positions: Int32Array) -> None:
        states, step, num_tokens = self._states, self.step, len(positions)
        if self._is_drawn_only:
            step.input_rows[:num_tokens] = row_of_token
        else:
            is_drawn = positions >= states.num_given_tokens[row_of_token]
            step.input_rows[:num_tokens] = np.where(is_drawn, row_of_token, -1)
            step.input_ids[:num_tokens] = states.token_ids[row_of_token, positions]

    def _choose_logit_rows(self, num_scheduled: Int32Array) -> None:
        """A request draws when the step reaches its last token; prompt positions may report."""
        states, step, rows = self._states, self.step, self.rows
        num_requests = len(rows)
        num_tokens = states.num_tokens[rows]
        draws = step.seq_lens[:num_requests] == num_tokens
        self._num_tokens_after = num_tokens + draws
        self.targets = None
        self.prompt_starts = []
        if states.sampling.wants_prompt_logprobs(rows):
            self._add_prompt_rows(draws)
        else:
            self.logit_requests = self._request_index[:num_requests]
            if not draws.all():
                self.logit_requests = self.logit_requests[draws]
            step.num_logits = len(self.logit_requests)
            step.logit_rows[: step.num_logits] = step.query_start[self.logit_requests + 1] - 1

    def _add_prompt_rows(self, draws: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        states, step = self._states, self.step
        logit_rows: list[int] = []
        requests: list[int] = []
        targets: list[int] = []
        for index, row in enumerate(self.rows.tolist()):
            start, end = int(step.query_start[index]), int(step.query_start[index + 1])
            first_position = int(step.positions[start])
            if states.reports_prompt_logprobs(row):
                if first_position == 0:
                    self.prompt_starts.append(index)
                # position p scores the prompt's token p + 1
                count = min(end - start, int(states.num_prompt_tokens[row]) - 1 - first_position)
                for token in range(max(count, 0)):
                    logit_rows.append(start + token)
                    requests.append(index)
                    targets.append(int(states.token_ids[row, first_position + token + 1]))
            if draws[index]:
                logit_rows.append(end - 1)
                requests.append(index)
                targets.append(-1)
        step.num_logits = len(logit_rows)
        step.logit_rows[: len(logit_rows)] = logit_rows
        self.logit_requests = np.array(requests, np.int32)
        self.targets = np.array(targets, np.int32)

    def _fill_sampling(self, scheduled: SchedulerOutput) -> None:
        states = self._states
        rows = self.rows[self.logit_requests]
        self.max_logprobs = states.sampling.fill(
            self.sampling,
            rows,
            output_index=states.num_tokens[rows] - states.num_prompt_tokens[rows],
            targets=self.targets,
            grammar_rows=[self._states.row(name) for name in scheduled.grammar_request_ids],
        )
        self.histories = states.sampling.histories(self.sampling, rows)

    def set_grammar_masks(self, masks: GrammarMasks) -> None:
        """What the grammars allow, for the requests that have one, in the order in which the
        scheduler named them. After `prepare`, before sampling."""
        self.sampling.set_grammars(masks, self.step.num_logits)
