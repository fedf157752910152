"""A worker without a model, fast enough for a million events.

Each token is the checksum of all tokens before it and of the request's salt; a slot of the cache
holds the checksum of the sequence that ends there. So reading a block that is not one's own prefix,
a position that was never computed, or another tenant's block is an assertion.

Knows nothing of: the scheduler's reasons, clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence

from octavo.messages.engine import TokenLogprobs
from octavo.messages.step import ModelRunnerOutput, NewRequestData, SchedulerOutput

VOCAB_SIZE = 1000
#: in slots that a failed request should have written
POISON = -1


def checksums(salt: int, token_ids: Sequence[int]) -> list[int]:
    """[n + 1] of the first 0..n tokens."""
    values = [salt]
    crc32 = zlib.crc32
    for token_id in token_ids:
        values.append(crc32(token_id.to_bytes(4, "little"), values[-1]))
    return values


def alone(salt: int, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What a request generates when nothing disturbs it."""
    value = checksums(salt, prompt)[-1]
    output = []
    for _ in range(num_tokens):
        output.append(value % VOCAB_SIZE)
        value = zlib.crc32(output[-1].to_bytes(4, "little"), value)
    return output


class SlotRow:
    """One request as a worker knows it."""

    __slots__ = (
        "checksums",
        "failure",
        "num_computed",
        "num_prompt",
        "reports_prompt",
        "tables",
        "token_ids",
    )

    def __init__(self, new: NewRequestData, salt: int) -> None:
        self.token_ids = list(new.token_ids)
        self.checksums = checksums(salt, new.token_ids)
        self.tables = [list(table) for table in new.block_ids]
        self.num_computed = new.num_computed_tokens
        self.num_prompt = new.num_prompt_tokens
        self.reports_prompt = (
            new.sampling_params.prompt_logprobs is not None
            and len(new.token_ids) == new.num_prompt_tokens
        )
        self.failure: str | None = None


class SlotExecutor:
    """See the module.

    Args:
        num_blocks, block_size: the pool.
        windows: per KV group its sliding window.
        max_num_seqs: rows.
        salts: by request id; filled by the test before the request's first step.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        windows: Sequence[int | None],
        max_num_seqs: int,
        salts: Mapping[str, int],
    ) -> None:
        self.rows: dict[str, SlotRow] = {}
        self._block_size = block_size
        self._windows = windows
        self._max_num_seqs = max_num_seqs
        self._salts = salts
        # [block][slot] = checksum * groups + group: a block belongs to one group at a time
        self._blocks: list[list[int]] = [[0] * block_size for _ in range(num_blocks)]

    def execute(self, step: SchedulerOutput, failing: Collection[str]) -> ModelRunnerOutput:
        """One step; `failing` begin to fail in it."""
        self._update(step)
        for request_id in failing:
            self.rows[request_id].failure = "failed by the test"
        rows, counts = self.rows, step.num_scheduled_tokens
        for request_id, count in counts.items():  # written before any is read, as in a real layer
            self._write(rows[request_id], count)
        sampled: dict[str, list[int]] = {}
        prompt_logprobs: dict[str, list[TokenLogprobs | None]] = {}
        failed = {}
        for request_id, count in counts.items():
            row = rows[request_id]
            start, end = row.num_computed, row.num_computed + count
            assert end <= len(row.token_ids), "a token was scheduled that does not exist"
            is_sound = row.failure is None and self._reads_its_prefix(row, start, end)
            if row.reports_prompt:
                prompt_logprobs[request_id] = _scores(row, start, end)
            sampled[request_id] = []
            if end == len(row.token_ids):
                token_id = row.checksums[-1] % VOCAB_SIZE if is_sound else VOCAB_SIZE
                row.token_ids.append(token_id)
                row.checksums.append(zlib.crc32(token_id.to_bytes(4, "little"), row.checksums[-1]))
                if row.failure is None:
                    sampled[request_id].append(token_id)
            if row.failure is not None:
                failed[request_id] = row.failure
            row.num_computed = end
        return ModelRunnerOutput(
            sampled, prompt_logprobs=prompt_logprobs or None, failed=failed or None
        )

    def _update(self, step: SchedulerOutput) -> None:
        for request_id in step.finished_request_ids:
            del self.rows[request_id]
        for new in step.new_requests:
            assert new.request_id not in self.rows
            self.rows[new.request_id] = SlotRow(new, self._salts[new.request_id])
        assert len(self.rows) <= self._max_num_seqs, "more requests than rows"
        for request_id, block_ids in step.new_block_ids.items():
            for table, new_blocks in zip(self.rows[request_id].tables, block_ids, strict=True):
                table.extend(new_blocks)

    def _write(self, row: SlotRow, count: int) -> None:
        size, groups = self._block_size, len(self._windows)
        for group, table in enumerate(row.tables):
            for position in range(row.num_computed, row.num_computed + count):
                value = POISON if row.failure else row.checksums[position + 1] * groups + group
                block = table[position // size]
                assert block > 0, "the null block is written"
                self._blocks[block][position % size] = value

    def _reads_its_prefix(self, row: SlotRow, start: int, end: int) -> bool:
        """False if it reads what a failed request should have written."""
        size, groups = self._block_size, len(self._windows)
        for group, window in enumerate(self._windows):
            table = row.tables[group]
            first = 0 if window is None else max(0, start - window + 1)
            for index in range(first // size, -(-end // size)):
                low, high = max(first, index * size), min(end, (index + 1) * size)
                held = self._blocks[table[index]][low - index * size : high - index * size]
                own = row.checksums[low + 1 : high + 1]
                if groups > 1:
                    own = [value * groups + group for value in own]
                if held != own:
                    if POISON in held:
                        return False
                    raise AssertionError(f"positions {low}..{high} read what is not their prefix")
        return True


def _scores(row: SlotRow, start: int, end: int) -> list[TokenLogprobs | None]:
    """What a worker reports of the prompt's positions: position p scores token p + 1."""
    first: list[TokenLogprobs | None] = [None] if start == 0 else []
    return first + [
        TokenLogprobs([row.token_ids[position + 1]], [0.0], [position + 1])
        for position in range(start, min(end, row.num_prompt - 1))
    ]
