"""Random lives of a scheduler on a simulated clock, with everything it promises checked.

A *world* is one scheduler with random settings and a random load: arrivals alone and in groups,
with shared prefixes, priorities and salts, also prompts that go on from what others have generated;
aborts; failures; resets; steps of random length and budget, one or two of them on their way. In
some worlds tokens of prompts and generated ones are computed differently, in some a real
`InputBatch` arranges the steps. After each step every invariant is looked at; at the end
everything is drained and the books must balance.

`python -m tests.fakes.scheduler_simulation 1000000` runs worlds until a million events are over.

What is checked of each step: budget and number of requests; reference counts are the number of
holders, free and held blocks are the pool; a block is in two tables only at the same place of the
same prefix; nobody is admitted before one that comes first (unless that one waits for blocks which
a running request computes); a running request is left out only if the budget is spent or its token
is on its way; where there is work there is a step. Of each request: its tokens are those it would
get alone, its prompt's log-probabilities come once and complete, it ends once, and it ends within
a number of steps that follows from the work before it. Of each world: counters add up.

Knows nothing of: executors, sockets, tensors.
"""

from __future__ import annotations

import logging
import random
import sys
import time
import traceback
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain

from octavo.config.engine import SchedulerConfig
from octavo.core.block_pool import NULL_BLOCK
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.scheduled_step import any_size
from octavo.core.scheduler import Scheduler
from octavo.core.step_limit import StepLimit
from octavo.messages.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from octavo.messages.kv_cache import KVCacheConfig, KVCacheGroup
from octavo.messages.step import ModelRunnerOutput, SchedulerOutput
from octavo.structured_output.manager import NoStructuredOutput
from tests.fakes.requests import core_request
from tests.fakes.slot_executor import VOCAB_SIZE, FakeModel, Origin, SlotExecutor

MAX_MODEL_LEN = 64
EVENTS_PER_WORLD = 1500
_SALTS = (None, None, None, "s", "t")


@dataclass
class Life:
    """What is known of one request from outside."""

    message: EngineCoreRequest
    salt: int
    key: tuple[float, ...]  # order of service
    arrived_at_step: int
    steps_allowed: int  # from its arrival to its end
    admitted_work_seen: int  # value of the world's counter when it began to wait
    is_waiting: bool = True
    num_cached: int | None = None
    num_preemptions: int = 0
    token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: list[int] | None = None
    end: FinishReason | None = None
    may_fail: bool = False

    @property
    def work(self) -> int:
        """Most steps it takes when it is first in line: prompt, tokens, and all of it again."""
        params = self.message.sampling_params
        assert params.max_tokens is not None
        return 2 * (len(self.message.prompt_token_ids) + params.max_tokens) + 2


class World:
    """One scheduler and its load.

    Args:
        seed: of everything random.
    """

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        self.now_s = 0.0
        self.block_size = rng.choice([1, 2, 4, 4])
        self.windows: list[int | None] = rng.choice([[None], [None], [None, 5], [6], [None, 3, 9]])
        self.depth = rng.choice([1, 1, 2])
        self.max_num_seqs = rng.randint(1, 10)
        self.max_budget = rng.choice([12, 24, 48])
        self.is_caching = rng.random() < 0.85
        self.policy = rng.choice(["fcfs", "priority"])
        self.model = FakeModel(rng.choice([VOCAB_SIZE, VOCAB_SIZE, 1]), rng.random() < 0.5)
        # from hardly one request to room for all
        num_blocks = rng.choice([10, 20, 40, 200]) * len(self.windows) * 4 // self.block_size
        self.config = SchedulerConfig(
            max_num_batched_tokens=self.max_budget,
            max_num_seqs=self.max_num_seqs,
            enable_chunked_prefill=rng.random() < 0.9 or self.max_budget < MAX_MODEL_LEN,
            long_prefill_token_threshold=rng.choice([0, 0, 3, 8]),
            policy=self.policy,
            watermark=rng.choice([0.0, 0.0, 0.1]),
            scheduler_reserve_full_isl=rng.random() < 0.7,
            depth=self.depth,
        )
        self.kv = KVCacheManager(
            KVCacheConfig(
                num_blocks=num_blocks + 1,
                block_size=self.block_size,
                bytes_per_block=1,
                groups=[KVCacheGroup([n], window) for n, window in enumerate(self.windows)],
                tells_prompts_apart=self.model.tells_prompts_apart,
            ),
            max_num_batched_tokens=self.max_budget,
            enable_caching=self.is_caching,
        )
        self.scheduler = Scheduler(
            self.config,
            max_model_len=MAX_MODEL_LEN,
            kv=self.kv,
            structured_output=NoStructuredOutput(),
            clock=lambda: self.now_s,
        )
        # in some worlds prompts are cut by time as well
        self.limit = StepLimit(self.config, 0.4) if rng.random() < 0.3 else None
        self.max_len = self.kv.longest_request(MAX_MODEL_LEN)
        self.origins: dict[str, Origin] = {}
        self.executor = SlotExecutor(
            num_blocks=num_blocks + 1,
            block_size=self.block_size,
            windows=self.windows,
            max_num_seqs=self.max_num_seqs,
            origins=self.origins,
            model=self.model,
            has_batch=rng.random() < 0.3,
            max_tokens=self.max_budget,
            max_model_len=MAX_MODEL_LEN,
        )
        self.alive: dict[str, Life] = {}
        self.dead: list[Life] = []
        self.in_flight: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
        self.prefixes = [self._tokens(rng.randint(1, 40)) for _ in range(3)]
        self.num_events = self.num_steps = self.num_ids = self.num_scheduled = 0
        self.admitted_work = 0  # of all admissions so far
        self.load = rng.choice([0.1, 0.3, 0.6])  # arrivals per unit of time
        self.max_alive = rng.choice([8, 25])
        # sums of what the scheduler's counters say
        self.said = {"queries": 0, "hits": 0, "preemptions": 0, "scheduled": 0}

    # -- events ---------------------------------------------------------------------------------

    def run(self, num_events: int) -> None:
        """Lives for about so many events, then drains."""
        next_arrival_s = 0.0
        while self.num_events < num_events:
            while next_arrival_s <= self.now_s:
                next_arrival_s += self.random.expovariate(self.load)
                if len(self.alive) < self.max_alive:
                    self.arrive()
            if self.random.random() < 0.04:
                self.abort()
            if self.random.random() < 0.01:
                self.reset()
            if not self.step():
                self.now_s = next_arrival_s
        while self.alive or self.in_flight:
            self.step()
        self.check_books()

    def arrive(self) -> None:
        """One request, or a few that begin alike; or the next turn of a conversation."""
        rng = self.random
        beginning, salt = rng.choice(self.prefixes)[: rng.randint(0, 40)], rng.choice(_SALTS)
        known = [*self.dead[-20:], *self.alive.values()]
        if known and rng.random() < 0.2:
            life = rng.choice(known)
            num_read = rng.choice([rng.randint(0, 3), len(life.token_ids)])
            beginning = life.message.prompt_token_ids + life.token_ids[:num_read]
            salt = life.message.cache_salt
        prompt = beginning + self._tokens(rng.choice([0, rng.randint(0, 9)]))
        prompt = prompt or [1]
        for _ in range(rng.choice([1, 1, 1, 1, 2, 4])):
            self.num_events += 1
            self.num_ids += 1
            # an id may be used again as soon as its request has ended
            request_id = f"r{self.num_ids % 40}"
            if request_id in self.alive:
                request_id = f"x{self.num_ids}"
            # what one has in its prompt another may generate
            more = [0] * rng.choice([0, 0, 1, 2])
            self._add(request_id, (prompt + more)[: MAX_MODEL_LEN - 1], salt)

    def _add(self, request_id: str, prompt: list[int], salt: str | None) -> None:
        rng = self.random
        max_tokens = rng.randint(0, min(16, MAX_MODEL_LEN - len(prompt)))
        message = core_request(
            request_id,
            prompt,
            priority=rng.randint(-1, 1),
            arrival_time_s=self.now_s,
            cache_salt=salt,
            eos_token_ids=rng.choice([[], list(range(7, 1000, 12))]),
            max_tokens=max_tokens,
            min_tokens=rng.choice([0, 0, 0, min(2, max_tokens)]),
            prompt_logprobs=rng.choice([None, None, None, 0]),
        )
        origin = Origin(0 if salt is None else ord(salt), len(prompt))
        self.origins[request_id] = origin
        key: tuple[float, ...] = (self.num_ids,)
        if self.policy == "priority":
            key = (message.priority, self.now_s, self.num_ids)
        life = Life(message, origin.salt, key, self.num_steps, 0, self.admitted_work)
        life.steps_allowed = life.work + sum(other.work for other in self.alive.values())
        self.alive[request_id] = life
        self.scheduler.add_request(message)
        if len(prompt) > self.max_len:
            self._take(self.scheduler.take_outputs())
            assert life.end is FinishReason.ERROR, "a prompt larger than the cache is refused"

    def abort(self) -> None:
        """Somebody leaves, wherever he is; or nobody does."""
        self.num_events += 1
        request_id = self.random.choice([*self.alive, "nobody"])
        aborted = self.scheduler.abort_requests([request_id, "nobody either"])
        if request_id in self.alive:
            assert aborted == [request_id]
            self.dead.append(self.alive.pop(request_id))
            self.dead[-1].end = FinishReason.ABORT
        else:
            assert aborted == []

    def reset(self) -> None:
        """The prefix cache is forgotten if nobody holds blocks."""
        self.num_events += 1
        is_idle = self.kv.num_free_blocks == self.kv.num_usable_blocks
        assert self.kv.reset_prefix_cache() is is_idle

    def step(self) -> bool:
        """Starts steps until enough are on their way, then takes the oldest one's result."""
        while len(self.in_flight) < self.depth:
            budget = self.random.choice([self.max_budget, self.max_budget, self.max_num_seqs])
            if not self.config.enable_chunked_prefill:
                budget = self.max_budget
            chunk_size = any_size if self.limit is None else self.limit.chunk
            output = self.scheduler.schedule(budget, chunk_size)
            if output is None:
                assert self.in_flight or not self.alive, "there is work, but no step"
                break
            self.start(output, budget)
        if self.in_flight:
            self.finish(*self.in_flight.popleft())
            return True
        self._count()
        return False

    def start(self, output: SchedulerOutput, budget: int) -> None:
        self.num_steps += 1
        self.num_events += 1
        self.num_scheduled += output.total_num_scheduled_tokens
        self.check_limits(output, budget)
        failing = []
        if self.random.random() < 0.02:
            failing = [self.random.choice(list(output.num_scheduled_tokens))]
            self.num_events += 1
            if failing[0] in self.alive:
                self.alive[failing[0]].may_fail = True
        self._see_preemptions(output)
        result = self.executor.execute(output, failing)
        self._see_admissions(output)
        self.check_nobody_is_left_out(output, budget)
        self.in_flight.append((output, result))
        self.check_blocks()

    def finish(self, output: SchedulerOutput, result: ModelRunnerOutput) -> None:
        took_s = self.random.choice([0.1, 1.0, 5.0]) * self.random.random()
        self.now_s += took_s
        outputs = self.scheduler.update_from_output(result)
        if self.limit is not None:
            self.limit.observe(self.scheduler.last_step_load, took_s)
        self._take([*outputs, *self.scheduler.take_outputs()])
        self._count()
        self.check_blocks()

    # -- what the world sees --------------------------------------------------------------------

    def _see_preemptions(self, output: SchedulerOutput) -> None:
        for request_id in output.finished_request_ids:
            life = self.alive.get(request_id)
            # a row that goes although its request lives on; or an id that is used again
            if life is not None and not life.is_waiting:
                life.is_waiting = True
                life.num_preemptions += 1
                life.steps_allowed += life.work  # it computes again
                life.admitted_work_seen = self.admitted_work

    def _see_admissions(self, output: SchedulerOutput) -> None:
        """Nobody is admitted before one who comes first."""
        new_ids = [new.request_id for new in output.new_requests]
        for request_id in new_ids:
            life = self.alive[request_id]
            for other in self.alive.values():
                if other.is_waiting and other.key < life.key:
                    assert self._waits_for_blocks(other), (
                        f"{request_id} passes {other.message.request_id}"
                    )
            life.is_waiting = False
            life.steps_allowed += self.admitted_work - life.admitted_work_seen
            self.admitted_work += life.work
        for new in output.new_requests:
            life = self.alive[new.request_id]
            if life.num_cached is None:
                life.num_cached = new.num_computed_tokens

    def _waits_for_blocks(self, life: Life) -> bool:
        """True if a running request computes a block of its prefix: then others may pass."""
        message = life.message
        if not self.is_caching or message.sampling_params.prompt_logprobs is not None:
            return False
        tokens = message.prompt_token_ids + life.token_ids
        for row in self.executor.rows.values():
            if row.origin.salt != life.salt:
                continue
            end = (row.num_computed // self.block_size + 1) * self.block_size
            if self.model.tells_prompts_apart:
                num_prompt = len(message.prompt_token_ids)
                if min(row.origin.num_prompt, end) != min(num_prompt, end):
                    continue
            if end < len(tokens) and row.token_ids[:end] == tokens[:end]:
                return True
        return False

    def _take(self, outputs: list[EngineCoreOutput]) -> None:
        for output in outputs:
            life = self.alive[output.request_id]  # nobody speaks after his end
            if output.prompt_logprobs is not None:
                assert life.prompt_logprobs is None, "prompt log-probabilities come once"
                life.prompt_logprobs = [
                    -1 if entry is None else entry.token_ids[0] for entry in output.prompt_logprobs
                ]
            life.token_ids += output.new_token_ids
            if output.finish_reason is not None:
                life.end = output.finish_reason
                self.dead.append(self.alive.pop(output.request_id))
                self.check_end(life, output)

    def _count(self) -> None:
        stats = self.scheduler.stats()
        said = self.said
        numbers = {
            "queries": stats.prefix_cache.queries,
            "hits": stats.prefix_cache.hits,
            "preemptions": stats.num_preemptions,
            "scheduled": stats.num_scheduled_tokens,
        }
        for name, number in numbers.items():
            assert number >= 0, f"negative {name}"
            said[name] += number
        assert stats.num_running_reqs + stats.num_waiting_reqs == len(self.alive)
        assert 0 <= stats.num_running_reqs <= self.max_num_seqs

    # -- promises -------------------------------------------------------------------------------

    def check_limits(self, output: SchedulerOutput, budget: int) -> None:
        counts = output.num_scheduled_tokens
        assert 0 < output.total_num_scheduled_tokens == sum(counts.values()) <= budget
        assert len(counts) <= self.max_num_seqs
        assert all(count > 0 for count in counts.values())
        cap = self.config.long_prefill_token_threshold
        if cap and len(self.alive) > 1:
            assert max(counts.values()) <= cap
        new_ids = [new.request_id for new in output.new_requests]
        assert not new_ids or list(counts)[-len(new_ids) :] == new_ids, "who runs comes first"

    def check_nobody_is_left_out(self, output: SchedulerOutput, budget: int) -> None:
        """With budget left, every running request is in the step, unless its token is on its way
        (which takes a depth of two)."""
        if output.total_num_scheduled_tokens == budget:
            return
        on_their_way = {
            request_id
            for _, result in self.in_flight
            for request_id, tokens in result.sampled_token_ids.items()
            if tokens or request_id in (result.failed or ())
        }
        left_out = self.executor.rows.keys() - output.num_scheduled_tokens.keys()
        if self.limit is not None:  # a prompt may wait until there is time for it
            left_out = {name for name in left_out if self._decodes(name)}
        assert left_out & self.alive.keys() <= on_their_way, f"{left_out} are left out"

    def _decodes(self, request_id: str) -> bool:
        row = self.executor.rows[request_id]
        return len(row.token_ids) - row.num_computed <= 1

    def check_blocks(self) -> None:
        """Counts of holders, free blocks, and who may share."""
        pool, held = self.kv._pool, self.kv._held  # the books are nobody's business outside
        running = {request.request_id: request for request in self.scheduler._running}
        assert running.keys() == held.keys(), "who does not run holds blocks"
        for request_id, row in self.executor.rows.items():
            if request_id in running:
                computed = running[request_id].num_computed_tokens
                assert computed == row.num_computed, "the worker is somewhere else"
        tables = [table for entry in held.values() for table in entry.tables]
        holders = Counter(chain.from_iterable(tables))
        del holders[NULL_BLOCK]
        counts = list(map(pool.ref_count, holders))
        assert counts == list(holders.values()), "counts of holders are wrong"
        assert pool.num_free_blocks + len(holders) == pool.num_usable_blocks, "a block is lost"
        shared = {block for block, count in holders.items() if count > 1}
        if not shared:
            return
        places: dict[int, tuple[int, int, bytes]] = {}
        for request_id, entry in held.items():
            hashes = running[request_id].block_hashes
            for group, table in enumerate(entry.tables):
                for index, block in enumerate(table):
                    if block in shared:
                        place = (group, index, hashes[index])
                        assert places.setdefault(block, place) == place, "shared by mistake"

    def check_end(self, life: Life, output: EngineCoreOutput) -> None:
        expected, reason = self._alone(life)
        tokens = life.token_ids
        if output.finish_reason is FinishReason.ERROR:
            assert tokens == expected[: len(tokens)]
            assert life.may_fail or len(life.message.prompt_token_ids) > self.max_len, output.error
            return
        assert (tokens, output.finish_reason) == (expected, reason), "not its solo output"
        assert output.events is not None
        assert output.events.num_preemptions >= life.num_preemptions
        assert output.num_cached_tokens == life.num_cached
        if life.message.sampling_params.prompt_logprobs is not None:
            assert life.prompt_logprobs == [-1, *life.message.prompt_token_ids[1:]]
        took = self.num_steps - life.arrived_at_step
        allowed = life.steps_allowed * self.depth
        assert took <= allowed, f"{took} steps, {allowed} allowed"

    def _alone(self, life: Life) -> tuple[list[int], FinishReason]:
        message, params = life.message, life.message.sampling_params
        assert params.max_tokens is not None
        if params.max_tokens == 0:
            return [], FinishReason.LENGTH
        limit = min(params.max_tokens, self.max_len - len(message.prompt_token_ids))
        output = self.model.alone(life.salt, message.prompt_token_ids, max(limit, 1))
        for index, token_id in enumerate(output):
            if index + 1 >= params.min_tokens and token_id in message.eos_token_ids:
                return output[: index + 1], FinishReason.STOP
        return output, FinishReason.LENGTH

    def check_books(self) -> None:
        """Nothing is left, and counters are the sums of what happened."""
        assert self.kv.num_free_blocks == self.kv.num_usable_blocks
        assert self.scheduler.num_unfinished_requests == 0
        readers = [
            life
            for life in self.dead
            if self.is_caching
            and life.num_cached is not None
            and life.message.sampling_params.prompt_logprobs is None
        ]
        assert self.said["queries"] == sum(len(life.message.prompt_token_ids) for life in readers)
        assert self.said["hits"] == sum(life.num_cached or 0 for life in readers)
        assert self.said["scheduled"] == self.num_scheduled
        assert self.said["preemptions"] >= sum(life.num_preemptions for life in self.dead)
        assert set(self.kv._pool._free) == set(range(1, self.kv.num_usable_blocks + 1))

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(3) for _ in range(count)]


def simulate(num_events: int, first_seed: int = 0) -> int:
    """Runs worlds until so many events are over; returns the number of worlds. A broken promise is
    an assertion with the world's seed."""
    seed, left = first_seed, num_events
    while left > 0:
        world = World(seed)
        try:
            world.run(min(EVENTS_PER_WORLD, left))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} {error} at {where.name}: {where.line}"
            raise AssertionError(f"world {seed}, event {world.num_events}: {what}") from error
        left -= world.num_events
        seed += 1
    return seed - first_seed


if __name__ == "__main__":
    logging.disable()
    began_s = time.monotonic()
    worlds = simulate(int(sys.argv[1]))
    print(f"{sys.argv[1]} events in {worlds} worlds, {time.monotonic() - began_s:.0f} s: no fault")
