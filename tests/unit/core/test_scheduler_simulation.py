"""Random lives of a scheduler: nothing it promises is ever broken, and planted bugs are found.

What is checked is in `tests/fakes/scheduler_simulation.py`; its command line runs a million events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from octavo.core import admission, block_hash
from octavo.core.admission import Admission
from octavo.core.block_hash import PrefixScope
from octavo.core.kv_cache_manager import HeldBlocks, KVCacheManager
from octavo.core.request import Request, RequestStatus
from octavo.core.request_queue import RequestQueue
from octavo.core.scheduled_step import StepBuilder
from octavo.core.scheduler import Scheduler
from octavo.messages.step import SchedulerOutput
from octavo.ops.step import Int32Array
from octavo.worker.input_batch import InputBatch
from tests.fakes.scheduler_simulation import simulate

NUM_EVENTS = 60_000
#: a planted bug must be found within so many
NUM_EVENTS_OF_A_BUG = 30_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Failures are part of the load, and thousands of log records are slow to keep."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_promise_is_broken() -> None:
    assert simulate(NUM_EVENTS) > 10


Patch = Callable[[pytest.MonkeyPatch], None]


def a_preempted_request_keeps_some_blocks(patch: pytest.MonkeyPatch) -> None:
    release = KVCacheManager.release

    def leaky(self: KVCacheManager, request: Request) -> None:
        held = self._held.get(request.request_id)
        if held is not None and request.num_preemptions:
            held.tables[0] = held.tables[0][:-1]
        release(self, request)

    patch.setattr(KVCacheManager, "release", leaky)


def blocks_are_released_twice_on_preemption(patch: pytest.MonkeyPatch) -> None:
    preempt = Scheduler._preempt

    def twice(self: Scheduler, request: Request) -> None:
        tables = [table[:1] for table in self._kv._held[request.request_id].tables]
        preempt(self, request)
        for table in tables:  # only where it goes unnoticed by the pool itself
            if self._kv._pool.ref_count(table[0]):
                self._kv._pool.release(table)

    patch.setattr(Scheduler, "_preempt", twice)


def new_requests_cost_no_budget(patch: pytest.MonkeyPatch) -> None:
    add_new = StepBuilder.add_new

    def free_of_charge(
        self: StepBuilder, request: Request, num_tokens: int, tables: list[list[int]]
    ) -> None:
        add_new(self, request, num_tokens, tables)
        self.token_budget += num_tokens

    patch.setattr(StepBuilder, "add_new", free_of_charge)


def windows_expire_one_block_early(patch: pytest.MonkeyPatch) -> None:
    expire = KVCacheManager._expire

    def early(self: KVCacheManager, held: HeldBlocks, num_computed_tokens: int) -> None:
        expire(self, held, num_computed_tokens + self.block_size)

    patch.setattr(KVCacheManager, "_expire", early)


def the_salt_is_not_hashed(patch: pytest.MonkeyPatch) -> None:
    init = Request.__init__

    def unsalted(self: Request, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)  # type: ignore[arg-type]
        self.prefix_scope = PrefixScope()

    patch.setattr(Request, "__init__", unsalted)


def preempted_requests_go_to_the_back(patch: pytest.MonkeyPatch) -> None:
    add = Admission.add

    def to_the_back(self: Admission, request: Request) -> None:
        if request.status is RequestStatus.PREEMPTED:
            request.index += 1_000_000
        add(self, request)

    patch.setattr(Admission, "add", to_the_back)


def a_pending_sample_counts_twice(patch: pytest.MonkeyPatch) -> None:
    add = StepBuilder.add

    def counts_again(self: StepBuilder, request: Request, num_tokens: int) -> None:
        before = request.num_pending_samples
        add(self, request, num_tokens)
        request.num_pending_samples += request.num_pending_samples > before

    patch.setattr(StepBuilder, "add", counts_again)


def a_block_is_named_one_token_early(patch: pytest.MonkeyPatch) -> None:
    name = KVCacheManager.name_full_blocks

    def early(self: KVCacheManager, request: Request, num_tokens: int) -> list[int]:
        return name(self, request, min(num_tokens + 1, request.num_tokens))

    patch.setattr(KVCacheManager, "name_full_blocks", early)


def blocks_of_failed_requests_keep_their_names(patch: pytest.MonkeyPatch) -> None:
    def keep(self: KVCacheManager, blocks: list[int]) -> set[int]:
        return {block for block in blocks if self._pool.ref_count(block)}

    patch.setattr(KVCacheManager, "unname", keep)


def prompt_logprobs_survive_a_preemption_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    preempt = Scheduler._preempt

    def keeps(self: Scheduler, request: Request) -> None:
        kept = list(request.prompt_logprobs)
        preempt(self, request)
        request.prompt_logprobs = kept

    patch.setattr(Scheduler, "_preempt", keeps)


def chunks_on_their_way_count_after_a_preemption(patch: pytest.MonkeyPatch) -> None:
    preempt = Scheduler._preempt

    def counts(self: Scheduler, request: Request) -> None:
        void = [set(step.void) for step in self._in_flight]
        preempt(self, request)
        for step, before in zip(self._in_flight, void, strict=True):
            step.void = before

    patch.setattr(Scheduler, "_preempt", counts)


def the_last_of_the_queue_is_admitted_first(patch: pytest.MonkeyPatch) -> None:
    def backwards(policy: str) -> RequestQueue:
        return RequestQueue(lambda request: (-request.index,))

    patch.setattr(admission, "make_request_queue", backwards)


def a_victim_leaves_its_tokens_in_the_step(patch: pytest.MonkeyPatch) -> None:
    def stay(self: StepBuilder, request: Request) -> None:
        pass

    patch.setattr(StepBuilder, "withdraw", stay)


def a_prefix_hit_is_counted_again_after_preemption(patch: pytest.MonkeyPatch) -> None:
    start = Admission._start

    def counts_again(self: Admission, request: Request, num_cached_tokens: int) -> None:
        if request.num_preemptions:
            self._prefix_hits += num_cached_tokens
        start(self, request, num_cached_tokens)

    patch.setattr(Admission, "_start", counts_again)


def generated_tokens_are_named_as_those_of_prompts(patch: pytest.MonkeyPatch) -> None:
    init = KVCacheManager.__init__

    def forgets(self: KVCacheManager, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)  # type: ignore[arg-type]
        self._tells_prompts_apart = False

    patch.setattr(KVCacheManager, "__init__", forgets)


def where_a_prompt_ends_in_its_block_is_not_hashed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        block_hash, "_where", lambda first, size: (-1 if first is None else first // size, 0)
    )


def a_chunk_goes_on_behind_the_end_of_the_prompt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Request, "num_tokens_of_kind", lambda self, num_computed: self.max_num_tokens)


def what_was_generated_is_of_the_prompt_after_a_preemption(patch: pytest.MonkeyPatch) -> None:
    add_new = StepBuilder.add_new

    def all_prompt(
        self: StepBuilder, request: Request, num_tokens: int, tables: list[list[int]]
    ) -> None:
        add_new(self, request, num_tokens, tables)
        self._new[-1].num_prompt_tokens = len(self._new[-1].token_ids)

    patch.setattr(StepBuilder, "add_new", all_prompt)


def rows_stay_in_the_order_of_the_scheduler(patch: pytest.MonkeyPatch) -> None:
    order = InputBatch._order

    def as_they_come(self: InputBatch, scheduled: SchedulerOutput) -> tuple[Int32Array, Int32Array]:
        num_computed, num_scheduled = order(self, scheduled)
        names = list(scheduled.num_scheduled_tokens)
        places = [self.request_ids.index(name) for name in names]
        self.request_ids, self.rows = names, self.rows[places]
        return num_computed[places], num_scheduled[places]

    patch.setattr(InputBatch, "_order", as_they_come)


BUGS: list[Patch] = [
    a_preempted_request_keeps_some_blocks,
    blocks_are_released_twice_on_preemption,
    new_requests_cost_no_budget,
    windows_expire_one_block_early,
    the_salt_is_not_hashed,
    preempted_requests_go_to_the_back,
    a_pending_sample_counts_twice,
    a_block_is_named_one_token_early,
    blocks_of_failed_requests_keep_their_names,
    prompt_logprobs_survive_a_preemption_in_the_middle,
    chunks_on_their_way_count_after_a_preemption,
    the_last_of_the_queue_is_admitted_first,
    a_victim_leaves_its_tokens_in_the_step,
    a_prefix_hit_is_counted_again_after_preemption,
    generated_tokens_are_named_as_those_of_prompts,
    where_a_prompt_ends_in_its_block_is_not_hashed,
    a_chunk_goes_on_behind_the_end_of_the_prompt,
    what_was_generated_is_of_the_prompt_after_a_preemption,
    rows_stay_in_the_order_of_the_scheduler,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=r"^world \d+, event") as found:
        simulate(NUM_EVENTS_OF_A_BUG)
    print(found.value)
