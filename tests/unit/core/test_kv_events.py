from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.config.engine import CacheConfig, KVEventsConfig, SchedulerConfig
from octavo.core.block_hash import PrefixScope, Sha256CborHasher, Sha256Hasher, group_key
from octavo.core.engine_core import EngineCore
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.kv_events import KVEventLog, NoKVEvents, make_kv_events
from octavo.core.request import Request
from octavo.messages.engine import Adapter
from octavo.messages.kv_cache import KVCacheConfig, KVCacheGroup
from octavo.messages.kv_events import KVEventBatch
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor
from tests.fakes.kv_subscriber import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    FakePublisher,
    KVSubscriber,
)
from tests.fakes.requests import core_request

BLOCK, WINDOW = 4, 6
HASHER = Sha256CborHasher("seed")


class Rig:
    """A manager whose events go to a subscriber; one full and one sliding group by default."""

    def __init__(
        self,
        num_blocks: int = 20,
        windows: tuple[int | None, ...] = (None, WINDOW),
        *,
        use_int_hashes: bool = False,
        tells_prompts_apart: bool = False,
    ) -> None:
        groups = [KVCacheGroup([index], window) for index, window in enumerate(windows)]
        config = KVCacheConfig(
            num_blocks, BLOCK, 1, groups, tells_prompts_apart=tells_prompts_apart
        )
        self.publisher = FakePublisher()
        self.log = KVEventLog(self.publisher, config, rank=3, use_int_hashes=use_int_hashes)
        self.kv = KVCacheManager(
            config,
            max_num_batched_tokens=100,
            enable_caching=True,
            hasher=HASHER,
            events=self.log,
        )
        self._ids = itertools.count()

    @property
    def subscriber(self) -> KVSubscriber:
        self.log.flush()
        return self.publisher.subscriber

    def request(self, prompt: list[int], salt: str | None = None) -> Request:
        message = core_request(f"r{next(self._ids)}", prompt, cache_salt=salt)
        return Request(message, max_model_len=1000, index=0, queued_s=0.0)

    def compute(self, request: Request) -> list[int] | None:
        """Admits a request with all its tokens; the blocks that got a name, None without room."""
        hit = self.kv.find_prefix(request)
        tables = self.kv.admit(request, hit, request.num_tokens - hit.num_tokens, keep_free=0)
        if tables is None:
            return None
        request.num_computed_tokens = request.num_tokens
        return self.kv.name_full_blocks(request, request.num_tokens)


def chain(prompt: list[int], salt: str | None = None) -> list[bytes]:
    return HASHER.hash_blocks(PrefixScope(salt), None, prompt, BLOCK)


def test_named_blocks_are_one_event_with_tokens_parent_and_what_else_is_hashed() -> None:
    rig = Rig(windows=(None,))
    rig.compute(rig.request(list(range(9)), "salt"))
    names = chain(list(range(8)), "salt")
    (batch,) = rig.subscriber.batches
    assert batch.data_parallel_rank == 3
    assert batch.events == [
        BlockStored(
            block_hashes=names,
            parent_block_hash=None,
            token_ids=list(range(8)),
            block_size=BLOCK,
            lora_id=None,
            medium="GPU",
            lora_name=None,
            extra_keys=[("salt",), None],
            group_idx=0,
            kv_cache_spec_kind="full_attention",
        )
    ]


def test_what_is_known_already_is_not_stored_again_and_is_the_parent_of_what_follows() -> None:
    rig = Rig(windows=(None,))
    rig.compute(rig.request(list(range(9))))
    rig.compute(rig.request([*range(8), *range(50, 55)]))
    first, second = rig.subscriber.events
    assert isinstance(first, BlockStored)
    assert isinstance(second, BlockStored)
    assert second.parent_block_hash == first.block_hashes[-1]
    assert second.token_ids == [50, 51, 52, 53]
    assert second.extra_keys == [None]


def test_a_gap_of_blocks_that_others_have_named_splits_the_event() -> None:
    rig = Rig(windows=(None,))
    whole = rig.request(list(range(12)))
    hit = rig.kv.find_prefix(whole)
    rig.kv.admit(whole, hit, 12, keep_free=0)  # before the others have named anything
    rig.compute(rig.request(list(range(8))))
    rig.kv.name_full_blocks(whole, 12)
    names = chain(list(range(12)))
    stored = [event for event in rig.subscriber.events if isinstance(event, BlockStored)]
    assert [event.block_hashes for event in stored] == [names[:2], names[2:]]
    assert stored[1].parent_block_hash == names[1]
    assert stored[1].token_ids == [8, 9, 10, 11]


def test_each_group_has_its_events_and_says_what_it_is() -> None:
    rig = Rig()
    rig.compute(rig.request(list(range(5))))
    full, sliding = rig.subscriber.events
    assert isinstance(full, BlockStored)
    assert isinstance(sliding, BlockStored)
    assert (full.group_idx, full.kv_cache_spec_kind) == (0, "full_attention")
    assert full.kv_cache_spec_sliding_window is None
    assert (sliding.group_idx, sliding.kv_cache_spec_kind) == (1, "sliding_window")
    assert sliding.kv_cache_spec_sliding_window == WINDOW


def test_names_can_be_numbers_as_by_default_in_vllm() -> None:
    rig = Rig(windows=(None,), use_int_hashes=True)
    rig.compute(rig.request(list(range(9))))
    (event,) = rig.subscriber.events
    assert isinstance(event, BlockStored)
    first, second = chain(list(range(8)))
    assert event.block_hashes == [
        int.from_bytes(first[-8:], "big"),
        int.from_bytes(second[-8:], "big"),
    ]


def test_an_adapter_is_named_and_part_of_every_blocks_keys() -> None:
    rig = Rig(windows=(None,))
    message = core_request("a", list(range(8)))
    message.adapter = Adapter(7, "style", "/adapters/style")
    rig.compute(Request(message, max_model_len=1000, index=0, queued_s=0.0))
    (event,) = rig.subscriber.events
    assert isinstance(event, BlockStored)
    assert (event.lora_id, event.lora_name) == (7, "style")
    assert event.extra_keys == [("style",), ("style",)]
    scope = PrefixScope(None, ("style", "/adapters/style"))
    assert event.block_hashes == HASHER.hash_blocks(scope, None, list(range(8)), BLOCK)


def test_where_generated_tokens_begin_is_part_of_the_keys_if_it_matters() -> None:
    for tells_apart, keys in ((False, None), (True, "generated:2")):
        rig = Rig(windows=(None,), tells_prompts_apart=tells_apart)
        request = rig.request(list(range(6)), "salt")
        request.all_token_ids += range(50, 60)
        rig.compute(request)
        (event,) = rig.subscriber.events
        assert isinstance(event, BlockStored)
        assert event.token_ids == request.all_token_ids
        assert event.extra_keys == [("salt",), None if keys is None else (keys,), None, None]
        first_generated = 6 if tells_apart else None
        assert event.block_hashes == HASHER.hash_blocks(
            PrefixScope("salt"), None, request.all_token_ids, BLOCK, first_generated
        )


def test_evicted_blocks_of_a_group_are_removed_in_one_event() -> None:
    rig = Rig(num_blocks=5, windows=(None,))
    old = rig.request(list(range(16)))
    rig.compute(old)
    rig.kv.release(old)
    rig.compute(rig.request(list(range(100, 112))))
    removed = [event for event in rig.subscriber.events if isinstance(event, BlockRemoved)]
    assert [event.block_hashes for event in removed] == [chain(list(range(16)))[:0:-1]]
    assert (removed[0].medium, removed[0].group_idx) == ("GPU", 0)


def test_a_reset_clears_all() -> None:
    rig = Rig()
    request = rig.request(list(range(9)))
    rig.compute(request)
    assert not rig.kv.reset_prefix_cache()
    rig.kv.release(request)
    assert rig.kv.reset_prefix_cache()
    assert isinstance(rig.subscriber.events[-1], AllBlocksCleared)
    assert rig.subscriber.names == set()


def test_the_bytes_are_those_that_vllm_sends() -> None:
    rig = Rig(windows=(None,), use_int_hashes=True)
    payloads: list[bytes] = []
    rig.publisher.publish = lambda batch: payloads.append(msgspec.msgpack.encode(batch))  # type: ignore[method-assign]
    rig.compute(rig.request([1, 2, 3, 4]))
    rig.log.flush()
    (name,) = chain([1, 2, 3, 4])
    timestamp, events, rank = msgspec.msgpack.decode(payloads[0])
    assert timestamp > 1e9
    assert rank == 3
    assert list(events[0].items()) == [
        ("type", "BlockStored"),
        ("block_hashes", [int.from_bytes(name[-8:], "big")]),
        ("parent_block_hash", None),
        ("token_ids", [1, 2, 3, 4]),
        ("block_size", BLOCK),
        ("lora_id", None),
        ("medium", "GPU"),
        ("lora_name", None),
        ("extra_keys", [None]),
        ("group_idx", 0),
        ("kv_cache_spec_kind", "full_attention"),
    ]


def test_by_default_there_is_a_sink_that_does_nothing() -> None:
    layout = KVCacheConfig(5, BLOCK, 1, [KVCacheGroup([0])])
    assert isinstance(make_kv_events(None, None, layout, 0), NoKVEvents)
    assert isinstance(make_kv_events(FakePublisher(), KVEventsConfig(), layout, 0), KVEventLog)


class ManagerMachine(RuleBasedStateMachine):
    """Any order of what a scheduler does: a subscriber holds exactly what can be found."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(num_blocks=12)
        self.running: list[tuple[Request, list[int]]] = []  # with the blocks named last
        self.prompts: set[tuple[int, ...]] = set()

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def admit(self, prompt: list[int]) -> None:
        request = self.rig.request(prompt)
        named = self.rig.compute(request)
        if named is not None:
            self.running.append((request, named))
            self.prompts.add(tuple(prompt))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), token=st.integers(0, 1))
    def grow(self, data: st.DataObject, token: int) -> None:
        index = data.draw(st.integers(0, len(self.running) - 1))
        request, _ = self.running[index]
        request.all_token_ids.append(token)
        has_room = request.num_tokens <= request.num_slots
        if not has_room and self.rig.kv.extend(request, request.num_tokens) is None:
            request.all_token_ids.pop()
            return
        request.num_computed_tokens = request.num_tokens
        named = self.rig.kv.name_full_blocks(request, request.num_tokens)
        self.running[index] = (request, named)
        self.prompts.add(tuple(request.all_token_ids))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.running) - 1))
        request, _ = self.running.pop(index)
        self.rig.kv.release(request)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.running) - 1))
        request, named = self.running.pop(index)
        self.rig.kv.release(request)
        self.rig.kv.unname(named)

    @rule()
    def reset(self) -> None:
        self.rig.kv.reset_prefix_cache()

    @rule()
    def end_step(self) -> None:
        self.rig.log.flush()

    @invariant()
    def a_subscriber_can_tell_every_hit(self) -> None:
        names = self.rig.subscriber.names
        for prompt in self.prompts:
            probe = self.rig.request([*prompt, 0])
            assert self.rig.kv.find_prefix(probe).num_tokens == expected_hit(prompt, names)


def expected_hit(prompt: tuple[int, ...], names: set[tuple[int | None, int | bytes]]) -> int:
    """Tokens of the longest usable prefix, by the rule for one full and one sliding group."""
    hashes = chain(list(prompt))
    seen = -(-(WINDOW - 1) // BLOCK)  # blocks that the next token's window reaches into
    for num_blocks in range(len(hashes), 0, -1):
        full = all((0, hashes[i]) in names for i in range(num_blocks))
        sliding = all((1, hashes[i]) in names for i in range(max(0, num_blocks - seen), num_blocks))
        if full and sliding:
            return num_blocks * BLOCK
    return 0


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def engine(publisher: FakePublisher, num_blocks: int = 9) -> tuple[EngineCore, FakeExecutor]:
    executor = FakeExecutor()
    config = engine_config(
        cache=CacheConfig(num_gpu_blocks_override=num_blocks),
        scheduler=SchedulerConfig(max_num_batched_tokens=128, max_num_seqs=4),
        kv_events=KVEventsConfig(replay_endpoint="tcp://*:5558"),
    )
    return EngineCore(config, executor, kv_events=publisher), executor


def test_a_step_is_a_batch_and_a_step_that_names_nothing_is_none() -> None:
    publisher = FakePublisher()
    core, _ = engine(publisher)
    core.add_request(core_request("a", list(range(40)), max_tokens=10))
    batches = []
    while core.has_work:
        core.step()
        batches.append(len(publisher.subscriber.batches))
    # 40 tokens fill two blocks of 16 at once, the third is full after the 8th token of the reply
    assert batches == [1] * 8 + [2] * 2
    assert len(publisher.subscriber.names) == 3


def test_a_publisher_that_fails_is_no_reason_for_a_request_to_end() -> None:
    class Broken(FakePublisher):
        def publish(self, batch: object) -> None:
            raise ZeroDivisionError("a bug")

    core, _ = engine(Broken())
    core.add_request(core_request("a", list(range(40)), max_tokens=3))
    outputs = []
    while core.has_work:
        said = core.step()
        assert said is not None
        outputs += said.outputs
    assert [output.error for output in outputs] == [None] * 3
    assert core.reset_prefix_cache()


def test_a_step_that_fails_takes_back_what_it_stored() -> None:
    publisher = FakePublisher()
    core, executor = engine(publisher)
    executor.fail_next["a"] = "broken"
    core.add_request(core_request("a", list(range(40))))
    core.step()
    stored, removed = publisher.subscriber.events
    assert isinstance(stored, BlockStored)
    assert isinstance(removed, BlockRemoved)
    assert publisher.subscriber.names == set()


def test_a_reset_of_an_idle_engine_is_told_at_once() -> None:
    publisher = FakePublisher()
    core, _ = engine(publisher)
    core.add_request(core_request("a", list(range(40)), max_tokens=1))
    while core.has_work:
        core.step()
    assert core.reset_prefix_cache()
    assert isinstance(publisher.subscriber.events[-1], AllBlocksCleared)


def test_ready_says_where_events_are_published_and_the_end_closes_the_publisher() -> None:
    publisher = FakePublisher()
    publisher.endpoint, publisher.replay_endpoint = "tcp://*:4001", "tcp://*:4002"
    core, _ = engine(publisher)
    assert core.ready.kv_events is not None
    assert core.ready.kv_events.endpoint == "tcp://*:4001"
    assert core.ready.kv_events.replay_endpoint == "tcp://*:4002"
    core.shutdown()
    assert publisher.is_closed
    assert EngineCore(engine_config(), FakeExecutor()).ready.kv_events is None


@pytest.mark.parametrize("seed", range(20))
def test_after_any_load_a_subscriber_holds_what_requests_find(seed: int) -> None:
    """Preemptions, failures, aborts and evictions in a cache of 8 blocks."""
    rng = random.Random(seed)
    publisher = FakePublisher()
    core, executor = engine(publisher)
    prompts = [[rng.randrange(2) for _ in range(rng.randrange(1, 70))] for _ in range(6)]
    prompts += [prompt[: len(prompt) // 2] + [7] * 20 for prompt in prompts]
    for number in range(40):
        request_id = f"r{number}"
        core.add_request(
            core_request(request_id, rng.choice(prompts), max_tokens=rng.randrange(1, 40))
        )
        if rng.random() < 0.1:
            executor.fail_next[request_id] = "broken"
        if rng.random() < 0.2:
            core.abort_requests([f"r{rng.randrange(number + 1)}"])
        for _ in range(rng.randrange(6)):
            core.step()
    while core.has_work:
        core.step()
    assert any(isinstance(event, BlockRemoved) for event in publisher.subscriber.events)
    names = {name for _, name in publisher.subscriber.names}
    for number, prompt in enumerate(prompts):
        expected = 0
        for block_hash in hashes_of(prompt)[: (len(prompt) - 1) // 16]:
            if int.from_bytes(block_hash[-8:], "big") not in names:
                break
            expected += 16
        core.add_request(core_request(f"probe{number}", prompt, max_tokens=1))
        output = core.step()
        assert output is not None
        assert output.outputs[0].num_cached_tokens == expected
        names = {name for _, name in publisher.subscriber.names}


def hashes_of(prompt: list[int]) -> list[bytes]:
    return Sha256Hasher().hash_blocks(PrefixScope(), None, prompt, 16)


def test_keys_and_names_differ_only_by_the_group() -> None:
    (name,) = chain([1, 2, 3, 4])
    publisher = FakePublisher()
    layout = KVCacheConfig(5, BLOCK, 1, [KVCacheGroup([0]), KVCacheGroup([1], WINDOW)])
    log = KVEventLog(publisher, layout, rank=0, use_int_hashes=False)
    publisher.publish = lambda batch: batches.append(batch)  # type: ignore[method-assign]
    batches: list[KVEventBatch] = []
    log.removed(group_key(name, 0))
    log.removed(group_key(name, 1))
    log.flush()
    log.flush()
    (batch,) = batches
    assert [(event.block_hashes, event.group_idx) for event in batch.events] == [  # type: ignore[union-attr]
        ([name], 0),
        ([name], 1),
    ]
