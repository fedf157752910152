from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.core.block_pool import NULL_BLOCK, BlockPool, FreeList

NUM_BLOCKS = 9


def test_free_list_takes_the_front_and_gives_back_at_either_end() -> None:
    free = FreeList(5)
    assert list(free) == [1, 2, 3, 4]
    assert [free.pop(), free.pop()] == [1, 2]
    free.append(1)
    free.prepend(2)
    assert list(free) == [2, 3, 4, 1]
    free.remove(4)
    assert list(free) == [2, 3, 1]
    assert len(free) == 3


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(4)
    assert sorted(pool.take(3)) == [1, 2, 3]
    assert pool.num_free_blocks == 0
    assert pool.usage == 1.0


def test_taking_more_than_there_is_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="3 blocks wanted, 2 free"):
        BlockPool(3).take(3)


def test_a_named_block_is_found_after_its_release_until_it_is_taken() -> None:
    pool = BlockPool(3)
    (block,) = pool.take(1)
    assert pool.name(block, b"k")
    pool.release([block])
    assert pool.find(b"k") == block
    pool.share([block])
    assert pool.ref_count(block) == 1
    pool.release([block])
    pool.take(2)
    assert pool.find(b"k") is None


def test_blocks_without_a_name_are_taken_first_then_the_least_recently_used() -> None:
    pool = BlockPool(5)
    a, b, c, d = pool.take(4)
    pool.name(a, b"a")
    pool.name(b, b"b")
    pool.name(c, b"c")
    pool.release([b])
    pool.release([a])
    pool.release([c])
    pool.release([d])
    assert pool.take(4) == [d, b, a, c]


def test_a_second_block_of_the_same_content_stays_unnamed() -> None:
    pool = BlockPool(3)
    first, second = pool.take(2)
    assert pool.name(first, b"k")
    assert not pool.name(second, b"k")
    assert pool.find(b"k") == first


def test_releasing_more_often_than_taking_is_our_mistake() -> None:
    pool = BlockPool(3)
    (block,) = pool.take(1)
    pool.release([block])
    with pytest.raises(AssertionError, match="released more often"):
        pool.release([block])


def test_forgetting_everything_waits_until_nothing_is_in_use() -> None:
    pool = BlockPool(3)
    (block,) = pool.take(1)
    pool.name(block, b"k")
    assert not pool.forget_all()
    assert pool.find(b"k") == block
    pool.release([block])
    assert pool.forget_all()
    assert pool.find(b"k") is None


class PoolMachine(RuleBasedStateMachine):
    """Any order of calls, compared with plain sets and counters."""

    def __init__(self) -> None:
        super().__init__()
        self.ever_taken: set[int] = set()
        self.pool = BlockPool(NUM_BLOCKS)
        self.holds: Counter[int] = Counter()
        self.names: dict[bytes, int] = {}

    @rule(count=st.integers(0, NUM_BLOCKS - 1))
    def take(self, count: int) -> None:
        if count > self.pool.num_free_blocks:
            return
        blocks = self.pool.take(count)
        assert len(set(blocks)) == count
        assert NULL_BLOCK not in blocks
        for block in blocks:
            assert self.holds[block] == 0
            self.holds[block] = 1
        self.ever_taken.update(blocks)
        self.names = {key: block for key, block in self.names.items() if block not in blocks}

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block = self.names[data.draw(st.sampled_from(sorted(self.names)))]
        self.pool.share([block])
        self.holds[block] += 1

    @precondition(lambda self: +self.holds)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        blocks = data.draw(st.lists(st.sampled_from(sorted(+self.holds)), unique=True))
        self.pool.release(blocks)
        self.holds.subtract(blocks)

    @precondition(lambda self: set(+self.holds) - set(self.names.values()))
    @rule(data=st.data(), key=st.sampled_from([b"a", b"b", b"c"]))
    def name(self, data: st.DataObject, key: bytes) -> None:
        unnamed = sorted(set(+self.holds) - set(self.names.values()))
        block = data.draw(st.sampled_from(unnamed))
        assert self.pool.name(block, key) == (key not in self.names)
        self.names.setdefault(key, block)

    @rule(block=st.integers(1, NUM_BLOCKS - 1))
    def unname(self, block: int) -> None:
        self.pool.unname(block)
        self.names = {key: other for key, other in self.names.items() if other != block}

    @rule()
    def forget_all(self) -> None:
        if self.pool.forget_all():
            assert not +self.holds
            self.names.clear()
        else:
            assert +self.holds

    @invariant()
    def counts_add_up(self) -> None:
        in_use = len(+self.holds)
        assert self.pool.num_free_blocks == NUM_BLOCKS - 1 - in_use
        assert self.pool.usage == pytest.approx(in_use / (NUM_BLOCKS - 1))
        for block in range(1, NUM_BLOCKS):
            assert self.pool.ref_count(block) == self.holds[block]

    @invariant()
    def blocks_that_nobody_has_had_come_in_their_order(self) -> None:
        """Memory is made ready in this order (`octavo/ops/prefault.py`)."""
        assert self.ever_taken == set(range(1, 1 + len(self.ever_taken)))

    @invariant()
    def names_find_their_blocks(self) -> None:
        for key in (b"a", b"b", b"c"):
            assert self.pool.find(key) == self.names.get(key)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
