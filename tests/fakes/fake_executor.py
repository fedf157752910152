"""An executor without a model: deterministic tokens, and it checks what the scheduler tells it.

It keeps for every request what a worker would keep, and writes into "slots" what a kernel would
write: the token and all tokens before it. So a wrong block table, a block shared by mistake, a
wrong `num_computed_tokens` or a stale prefix hit is an assertion, not a wrong number. If it tells
prompts apart, a generated token is written otherwise than the same one in a prompt, and a step
computes all tokens of a request as what the first of them is.
"""

from __future__ import annotations

import zlib
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec

from octavo.executor.base import Executor
from octavo.messages.engine import TokenLogprobs
from octavo.messages.kv_cache import KVCacheConfig, KVCacheSpec, MemoryReport
from octavo.messages.profile import Profile
from octavo.messages.step import ModelRunnerOutput, NewRequestData, PendingMasks, SchedulerOutput

VOCAB_SIZE = 1000


POISON = -1  # in slots that a failed request should have written


def extend_checksum(checksum: int, token_id: int, is_generated: bool = False) -> int:
    """Checksum of a sequence from that of all but its last token."""
    kind = (1 << 40) * is_generated
    return zlib.crc32((token_id + kind).to_bytes(8, "little", signed=True), checksum)


def solo_output(
    prompt: list[int], num_tokens: int, *, tells_prompts_apart: bool = False
) -> list[int]:
    """What a request generates when nothing disturbs it: each token is the checksum of all tokens
    before it, so one wrong token changes everything after it."""
    checksum = 0
    for token_id in prompt:
        checksum = extend_checksum(checksum, token_id)
    output = []
    for _ in range(num_tokens):
        output.append(checksum % VOCAB_SIZE)
        checksum = extend_checksum(checksum, output[-1], tells_prompts_apart)
    return output


@dataclass
class Row:
    """A worker's view of one request; `checksums[i]` is that of the first i tokens."""

    token_ids: list[int]
    block_ids: list[list[int]]
    num_computed_tokens: int
    checksums: list[int]
    num_prompt_tokens: int
    is_resumed: bool
    tells_prompts_apart: bool
    failure: str | None = None

    def append(self, token_id: int) -> None:
        is_generated = self.is_other(len(self.token_ids))
        self.token_ids.append(token_id)
        self.checksums.append(extend_checksum(self.checksums[-1], token_id, is_generated))

    def is_other(self, position: int) -> bool:
        """True if the token there is computed otherwise than one of a prompt."""
        return self.tells_prompts_apart and position >= self.num_prompt_tokens

    def written(self, first: int, position: int) -> int:
        """What is written for a position in a step that begins at `first`."""
        if self.is_other(position) is self.is_other(first):
            return self.checksums[position + 1]
        return extend_checksum(
            self.checksums[position], self.token_ids[position], self.is_other(first)
        )


class FakeExecutor(Executor):
    """See the module.

    Args:
        specs: KV need; two layers of full attention by default.
        tells_prompts_apart: tokens of prompts and generated ones differ; `specs` say so.
        available_bytes: memory that the plan may use.
        full_step_s: what `warm_up` reports.
        backend_s: what every step claims to have computed.
    """

    def __init__(
        self,
        *,
        specs: list[KVCacheSpec] | None = None,
        tells_prompts_apart: bool = False,
        available_bytes: int = 1 << 30,
        full_step_s: float = 0.1,
        backend_s: float = 0.0,
    ) -> None:
        self._backend_s = backend_s
        self.calls: list[str] = []
        self.steps: list[SchedulerOutput] = []
        self.rows: dict[str, Row] = {}
        self.fail_next: dict[str, str] = {}  # request_id -> message, for the next step
        self.unservable: set[str] = set()  # failures that the request asked for
        self.reports_prompt_logprobs = False  # of every request, as a worker does
        self.kv_config: KVCacheConfig | None = None
        self._tells_prompts_apart = tells_prompts_apart
        self._specs = [
            msgspec.structs.replace(spec, tells_prompts_apart=tells_prompts_apart)
            for spec in specs or [KVCacheSpec(n, 2, 8, 8, "bfloat16") for n in range(2)]
        ]
        self._available_bytes = available_bytes
        self._full_step_s = full_step_s
        # slot -> (group, checksum of the prefix): a block belongs to one group at a time
        self._slots: dict[int, tuple[int, int]] = {}

    def load(self) -> None:
        self.calls.append("load")

    def memory_report(self) -> MemoryReport:
        self.calls.append("memory_report")
        return MemoryReport(self._available_bytes, 0, 0)

    def kv_cache_specs(self) -> list[KVCacheSpec]:
        return self._specs

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        self.calls.append("initialize_kv_cache")
        self.kv_config = config

    def warm_up(self) -> float:
        self.calls.append("warm_up")
        return self._full_step_s

    def idle(self) -> None:
        self.calls.append("idle")

    def start_profile(self) -> None:
        raise AssertionError("there are no operations to clock")

    def stop_profile(self) -> Profile:
        raise AssertionError("no profile was started")

    def notes(self) -> list[str]:
        return []

    def abort(self) -> None:
        self.calls.append("abort")

    def check_health(self) -> None:
        pass

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def execute_model(
        self, scheduled: SchedulerOutput, grammar_masks: PendingMasks | None = None
    ) -> Future[ModelRunnerOutput]:
        self.steps.append(scheduled)
        self._update_rows(scheduled)
        for request_id, message in self.fail_next.items():
            if request_id in scheduled.num_scheduled_tokens:
                self.rows[request_id].failure = message
        self.fail_next = {}
        failed = {
            request_id: failure
            for request_id in scheduled.num_scheduled_tokens
            if (failure := self.rows[request_id].failure) is not None
        }
        self._write_slots(scheduled, failed)
        sampled: dict[str, list[int]] = {}
        scores: dict[str, list[TokenLogprobs | None]] = {}
        for request_id, count in scheduled.num_scheduled_tokens.items():
            row = self.rows[request_id]
            end = row.num_computed_tokens + count
            assert end <= len(row.token_ids), "a token was scheduled that does not exist"
            sampled[request_id] = []
            if self.reports_prompt_logprobs:
                scores[request_id] = _scores(row, row.num_computed_tokens, end)
            is_sound = row.failure is None and self._reads_its_prefix(row, end)
            if end == len(row.token_ids):
                token_id = row.checksums[-1] % VOCAB_SIZE if is_sound else VOCAB_SIZE
                row.append(token_id)
                if row.failure is None:
                    sampled[request_id] = [token_id]
            row.num_computed_tokens = end
        result: Future[ModelRunnerOutput] = Future()
        result.set_result(
            ModelRunnerOutput(
                sampled,
                prompt_logprobs=scores or None,
                failed=failed or None,
                unservable=sorted(self.unservable & set(failed)),
                backend_s=self._backend_s,
            )
        )
        return result

    def _update_rows(self, scheduled: SchedulerOutput) -> None:
        for request_id in scheduled.finished_request_ids:
            del self.rows[request_id]
        for new in scheduled.new_requests:
            assert new.request_id not in self.rows
            self.rows[new.request_id] = _row(new, self._tells_prompts_apart)
        for request_id, block_ids in scheduled.new_block_ids.items():
            row = self.rows[request_id]
            for table, new_blocks in zip(row.block_ids, block_ids, strict=True):
                table.extend(new_blocks)
        assert sum(scheduled.num_scheduled_tokens.values()) == (
            scheduled.total_num_scheduled_tokens
        )

    def _write_slots(self, scheduled: SchedulerOutput, failed: dict[str, str]) -> None:
        """All rows of a step are written before any is read, as in a layer of a real model."""
        for request_id, count in scheduled.num_scheduled_tokens.items():
            row = self.rows[request_id]
            first = row.num_computed_tokens
            for position in range(first, first + count):
                value = POISON if request_id in failed else row.written(first, position)
                for group in range(len(row.block_ids)):
                    self._slots[self._slot(row, group, position)] = (group, value)

    def _reads_its_prefix(self, row: Row, end: int) -> bool:
        """False if the request reads what a failed one should have written. Anything else that is
        not its own prefix is an error of the scheduler."""
        assert self.kv_config is not None
        for group, layers in enumerate(self.kv_config.groups):
            window = layers.sliding_window
            first = 0 if window is None else max(0, row.num_computed_tokens - window + 1)
            for position in range(first, end):
                owner, value = self._slots[self._slot(row, group, position)]
                if value == POISON:
                    return False
                assert owner == group, f"position {position} reads another group's block"
                assert value == row.checksums[position + 1], (
                    f"position {position} reads what is not its prefix"
                )
        return True

    def _slot(self, row: Row, group: int, position: int) -> int:
        assert self.kv_config is not None
        block_size = self.kv_config.block_size
        block = row.block_ids[group][position // block_size]
        assert 0 < block < self.kv_config.num_blocks, f"block {block} at position {position}"
        return block * block_size + position % block_size


def _scores(row: Row, start: int, end: int) -> list[TokenLogprobs | None]:
    """Position p scores token p + 1; a resumed request has reported all of them."""
    if row.is_resumed:
        return []
    first: list[TokenLogprobs | None] = [None] if start == 0 else []
    return first + [
        TokenLogprobs([row.token_ids[position + 1]], [0.0], [1])
        for position in range(start, min(end, row.num_prompt_tokens - 1))
    ]


def _row(new: NewRequestData, tells_prompts_apart: bool) -> Row:
    row = Row(
        [],
        [list(table) for table in new.block_ids],
        new.num_computed_tokens,
        [0],
        new.num_prompt_tokens,
        is_resumed=len(new.token_ids) > new.num_prompt_tokens,
        tells_prompts_apart=tells_prompts_apart,
    )
    for token_id in new.token_ids:
        row.append(token_id)
    return row
