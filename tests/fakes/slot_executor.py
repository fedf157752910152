"""A worker without a model, fast enough for a million events.

Each token is the checksum of all tokens before it and of the request's salt; a slot of the cache
holds the checksum of the sequence that ends there. So reading a block that is not one's own prefix,
a position that was never computed, or another tenant's block is an assertion.

It may tell prompts apart, as backends do that compute the two kinds of tokens in different ways:
the checksum then covers whether a token was generated. Which it is computed as follows from the
first token that a step has of the request; or, if a real `InputBatch` is given, from its row.

Knows nothing of: the scheduler's reasons, clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from octavo.messages.engine import TokenLogprobs
from octavo.messages.step import ModelRunnerOutput, NewRequestData, SchedulerOutput
from octavo.sample.sampling_rows import SamplingRows
from octavo.worker.input_batch import InputBatch
from octavo.worker.request_states import RequestStates

VOCAB_SIZE = 1000
#: set in the ids of generated tokens if these are told from those of prompts
_GENERATED = 1 << 30
#: in slots that a failed request should have written
POISON = -1


@dataclass(frozen=True)
class FakeModel:
    """What tokens are.

    Attributes:
        vocab_size: ids a token may have, at most `VOCAB_SIZE`. With few, what is generated often is
            what a prompt has.
        tells_prompts_apart: see the module.
    """

    vocab_size: int = VOCAB_SIZE
    tells_prompts_apart: bool = False

    def extend(self, value: int, token_id: int, is_generated: bool) -> int:
        """Checksum of a sequence from that of all but its last token."""
        if is_generated and self.tells_prompts_apart:
            token_id |= _GENERATED
        return zlib.crc32(token_id.to_bytes(4, "little"), value)

    def checksums(self, salt: int, token_ids: Sequence[int], num_prompt: int) -> list[int]:
        """[n + 1] of the first 0..n tokens."""
        values = [salt]
        for position, token_id in enumerate(token_ids):
            values.append(self.extend(values[-1], token_id, position >= num_prompt))
        return values

    def alone(self, salt: int, prompt: Sequence[int], num_tokens: int) -> list[int]:
        """What a request generates when nothing disturbs it."""
        value = self.checksums(salt, prompt, len(prompt))[-1]
        output = []
        for _ in range(num_tokens):
            output.append(value % self.vocab_size)
            value = self.extend(value, output[-1], True)
        return output


class Origin(NamedTuple):
    """What a request is, whatever the scheduler says of it."""

    salt: int
    num_prompt: int


class SlotRow:
    """One request as a worker knows it; `checksums` are what is right."""

    __slots__ = (
        "checksums",
        "failure",
        "num_computed",
        "num_prompt",
        "origin",
        "reports_prompt",
        "tables",
        "token_ids",
    )

    def __init__(self, new: NewRequestData, origin: Origin, model: FakeModel) -> None:
        self.origin = origin
        self.token_ids = list(new.token_ids)
        self.checksums = model.checksums(origin.salt, new.token_ids, origin.num_prompt)
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
        origins: by request id; filled by the test before the request's first step.
        model: what tokens are.
        has_batch: a real `InputBatch` arranges the steps; else they are taken as they come.
        max_tokens: largest step.
        max_model_len: longest request.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        windows: Sequence[int | None],
        max_num_seqs: int,
        origins: Mapping[str, Origin],
        model: FakeModel,
        has_batch: bool,
        max_tokens: int,
        max_model_len: int,
    ) -> None:
        self.rows: dict[str, SlotRow] = {}
        self._block_size = block_size
        self._windows = windows
        self._max_num_seqs = max_num_seqs
        self._origins = origins
        self._model = model
        self._batch: tuple[RequestStates, InputBatch] | None = None
        if has_batch:
            states = RequestStates(
                SamplingRows(max_requests=max_num_seqs, vocab_size=VOCAB_SIZE + 1, engine_seed=0),
                max_requests=max_num_seqs,
                max_model_len=max_model_len,
                num_groups=len(windows),
                block_size=block_size,
            )
            batch = InputBatch(
                states, max_tokens=max_tokens, max_requests=max_num_seqs, block_size=block_size
            )
            self._batch = states, batch
        # [block][slot] = checksum * groups + group: a block belongs to one group at a time
        self._blocks: list[list[int]] = [[0] * block_size for _ in range(num_blocks)]

    def execute(self, step: SchedulerOutput, failing: Collection[str]) -> ModelRunnerOutput:
        """One step; `failing` begin to fail in it."""
        self._update(step)
        for request_id in failing:
            self.rows[request_id].failure = "failed by the test"
        rows, counts, model = self.rows, step.num_scheduled_tokens, self._model
        num_generated = self._arrange(step)
        for request_id, count in counts.items():  # written before any is read, as in a real layer
            self._write(rows[request_id], count, num_generated[request_id])
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
                token_id = row.checksums[-1] % model.vocab_size if is_sound else VOCAB_SIZE
                row.token_ids.append(token_id)
                row.checksums.append(model.extend(row.checksums[-1], token_id, True))
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
            self.rows[new.request_id] = SlotRow(new, self._origins[new.request_id], self._model)
        assert len(self.rows) <= self._max_num_seqs, "more requests than rows"
        for request_id, block_ids in step.new_block_ids.items():
            for table, new_blocks in zip(self.rows[request_id].tables, block_ids, strict=True):
                table.extend(new_blocks)

    def _arrange(self, step: SchedulerOutput) -> dict[str, int]:
        """How many of each request's tokens, from the first one on, are computed as generated."""
        counts, rows = step.num_scheduled_tokens, self.rows
        if self._batch is None:
            return {
                name: count if rows[name].num_computed >= rows[name].num_prompt else 0
                for name, count in counts.items()
            }
        states, batch = self._batch
        states.update(step)
        batch.prepare(step)
        arrays = batch.step
        starts = arrays.query_start[: arrays.num_requests + 1].tolist()
        positions = arrays.positions[: arrays.num_tokens].tolist()
        found = {}
        for name, (start, end) in zip(batch.request_ids, pairwise(starts), strict=True):
            first = rows[name].num_computed
            assert positions[start:end] == list(range(first, first + counts[name]))
            found[name] = min(max(arrays.num_generated - start, 0), end - start)
        return found

    def _write(self, row: SlotRow, count: int, num_generated: int) -> None:
        """The first `num_generated` of `count` tokens are computed as generated ones."""
        size, groups = self._block_size, len(self._windows)
        first = row.num_computed
        values = row.checksums[first + 1 : first + count + 1]
        for offset in range(count):
            is_generated = first + offset >= row.origin.num_prompt
            if is_generated is not (offset < num_generated):
                token_id = row.token_ids[first + offset]
                before = row.checksums[first + offset]
                values[offset] = self._model.extend(before, token_id, not is_generated)
        for group, table in enumerate(row.tables):
            for position, checksum in enumerate(values, first):
                value = POISON if row.failure else checksum * groups + group
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
