"""What the worker remembers of each request: one row per request, columns are arrays.

A row holds the token ids that came with the request, how many tokens are computed, the block table
of every KV group and the sampling state. Generated tokens stay where they are drawn: the backend
keeps the last one of each row (`last_tokens`), which is all that the next step needs, so that step
can be prepared before anybody has seen it. Rows are reused; the scheduler's full data comes once,
then only differences.

Runs in: workers. Owns: the rows. Knows nothing of: devices, models, queues.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from octavo.messages.step import NewRequestData, SchedulerOutput
from octavo.ops.step import Int32Array
from octavo.sample.sampling_rows import SamplingRows
from octavo.wording import first_line

logger = logging.getLogger(__name__)


class RequestStates:
    """The rows of all requests that the scheduler has given to this worker and not taken back.

    Args:
        sampling: the sampling columns.
        max_requests: number of rows.
        max_model_len: most tokens of a request.
        num_groups: KV groups.
        block_size: tokens per block.
    """

    def __init__(
        self,
        sampling: SamplingRows,
        *,
        max_requests: int,
        max_model_len: int,
        num_groups: int,
        block_size: int,
    ) -> None:
        self.sampling = sampling
        max_blocks = -(-max_model_len // block_size)
        # pages are touched as rows fill, so wide rows cost nothing while requests are short
        self.token_ids: Int32Array = np.zeros((max_requests, max_model_len), np.int32)
        self.last_tokens: Int32Array = np.zeros(max_requests, np.int32)
        self.num_tokens: Int32Array = np.zeros(max_requests, np.int32)  # drawn ones included
        self.num_given_tokens: Int32Array = np.zeros(max_requests, np.int32)  # in `token_ids`
        self.num_prompt_tokens: Int32Array = np.zeros(max_requests, np.int32)
        self.num_computed_tokens: Int32Array = np.zeros(max_requests, np.int32)
        self.block_tables: Int32Array = np.zeros((num_groups, max_requests, max_blocks), np.int32)
        self._num_blocks = [[0] * num_groups for _ in range(max_requests)]
        self._id_to_row: dict[str, int] = {}
        self._free_rows = list(range(max_requests - 1, -1, -1))
        self.num_blocks_used = 0  # blocks before this number have been in a table
        self.num_prepared = 0  # steps, whichever arrays they are prepared in
        self._unsettled: tuple[Int32Array, Int32Array] | None = None
        self._is_resumed = np.zeros(max_requests, bool)
        self._failed: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._id_to_row)

    def update(self, step: SchedulerOutput) -> None:
        """Applies what the scheduler says has changed."""
        if step.finished_request_ids or step.new_requests:
            self.settle()
        for request_id in step.finished_request_ids:
            self._remove(request_id)
        for new in step.new_requests:
            self._add(new)
        for request_id, block_ids in step.new_block_ids.items():
            self._extend_blocks(self._id_to_row[request_id], block_ids)

    def take_failed(self) -> dict[str, str]:
        """Requests whose sampling could not be set up since the last call, with the reason. They
        have rows until the scheduler takes them back, and what is computed in these means nothing.
        """
        failed, self._failed = self._failed, {}
        return failed

    def rows(self, request_ids: Sequence[str]) -> Int32Array:
        """[R] the rows of these requests."""
        id_to_row = self._id_to_row
        return np.array([id_to_row[request_id] for request_id in request_ids], np.int32)

    def row(self, request_id: str) -> int:
        """The row of one request."""
        return self._id_to_row[request_id]

    def reports_prompt_logprobs(self, row: int) -> bool:
        """True when prompt positions computed now must be reported.

        A request preempted after its first generated token has reported all of them already.
        """
        return self.sampling.has_prompt_logprobs(row) and not self._is_resumed[row]

    def advance_later(self, rows: Int32Array, num_computed_tokens: Int32Array) -> None:
        """As `advance` for a step in which each of the requests draws one token, put off until
        somebody looks: `num_computed_tokens` may go on changing till then."""
        self._unsettled = rows, num_computed_tokens

    def settle(self) -> None:
        """Does what was put off. Before rows are read, or change hands."""
        if self._unsettled is not None:
            rows, num_computed_tokens = self._unsettled
            self._unsettled = None
            self.advance(rows, num_computed_tokens, num_computed_tokens + 1)

    def advance(
        self, rows: Int32Array, num_computed_tokens: Int32Array, num_tokens: Int32Array
    ) -> None:
        """A step has been prepared.

        Args:
            rows: [R] its requests.
            num_computed_tokens: [R] computed tokens after it.
            num_tokens: [R] tokens after it, those it draws included.
        """
        self.num_computed_tokens[rows] = num_computed_tokens
        self.num_tokens[rows] = num_tokens

    def _add(self, new: NewRequestData) -> None:
        assert new.request_id not in self._id_to_row, f"request {new.request_id} is known already"
        row = self._free_rows.pop()
        self._id_to_row[new.request_id] = row
        num_tokens, num_prompt_tokens = len(new.token_ids), new.num_prompt_tokens
        self.token_ids[row, :num_tokens] = new.token_ids
        self.num_tokens[row] = self.num_given_tokens[row] = num_tokens
        self.num_prompt_tokens[row] = num_prompt_tokens
        self.num_computed_tokens[row] = new.num_computed_tokens
        self._is_resumed[row] = num_tokens > num_prompt_tokens
        self._num_blocks[row] = [0] * len(self.block_tables)
        self._extend_blocks(row, new.block_ids)
        try:
            self.sampling.add(
                row,
                new.request_id,
                new.sampling_params,
                prompt_token_ids=new.token_ids[:num_prompt_tokens],
                output_token_ids=new.token_ids[num_prompt_tokens:],
                eos_token_ids=new.eos_token_ids,
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # foreign code: a logits processor that may do anything
            logger.exception("The sampling of a request could not be set up.")
            self._failed[new.request_id] = (
                f"its sampling could not be set up: {type(error).__name__}: {first_line(error)}"
            )

    def _extend_blocks(self, row: int, block_ids: list[list[int]]) -> None:
        for group, ids in enumerate(block_ids):
            if ids:
                first = self._num_blocks[row][group]
                self.block_tables[group, row, first : first + len(ids)] = ids
                self._num_blocks[row][group] = first + len(ids)
                self.num_blocks_used = max(self.num_blocks_used, max(ids) + 1)

    def _remove(self, request_id: str) -> None:
        # a request that ended before its first step was never sent here
        row = self._id_to_row.pop(request_id, None)
        if row is not None:
            self.sampling.remove(row)
            self._free_rows.append(row)
