from __future__ import annotations

from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.request import Request
from octavo.messages.kv_cache import KVCacheConfig, KVCacheGroup
from tests.fakes.requests import core_request

BLOCK = 4


def manager(
    num_blocks: int = 20,
    windows: tuple[int | None, ...] = (None,),
    *,
    max_chunk: int = 100,
    caching: bool = True,
    tells_prompts_apart: bool = False,
) -> KVCacheManager:
    groups = [KVCacheGroup([index], window) for index, window in enumerate(windows)]
    return KVCacheManager(
        KVCacheConfig(num_blocks, BLOCK, 1, groups, tells_prompts_apart=tells_prompts_apart),
        max_num_batched_tokens=max_chunk,
        enable_caching=caching,
    )


def make(request_id: str, prompt: list[int], **fields: object) -> Request:
    message = core_request(request_id, prompt, **fields)  # type: ignore[arg-type]
    return Request(message, max_model_len=1000, index=0, queued_s=0.0)


def compute(kv: KVCacheManager, request: Request) -> int:
    """Admits a request with all its tokens, and returns its prefix hit."""
    hit = kv.find_prefix(request)
    tables = kv.admit(request, hit, request.num_tokens - hit.num_tokens, keep_free=0)
    assert tables is not None
    kv.name_full_blocks(request, request.num_tokens)
    request.num_computed_tokens = request.num_tokens
    return hit.num_tokens


def test_a_second_request_finds_the_full_blocks_of_the_first() -> None:
    kv = manager()
    a, b = make("a", [1] * 10), make("b", [1] * 10)
    assert compute(kv, a) == 0
    assert compute(kv, b) == 8


def test_the_last_token_is_always_computed() -> None:
    kv = manager()
    compute(kv, make("a", [1] * 8))
    assert compute(kv, make("b", [1] * 8)) == 4


def test_a_prefix_outlives_its_request() -> None:
    kv = manager()
    a = make("a", [1] * 9)
    compute(kv, a)
    kv.release(a)
    assert kv.usage == 0.0
    assert compute(kv, make("b", [1] * 9)) == 8


def answered(request_id: str, prompt: list[int], output: list[int]) -> Request:
    request = make(request_id, prompt, max_tokens=100)
    request.all_token_ids += output
    return request


def test_where_prompts_are_told_apart_generated_tokens_are_found_as_such_only() -> None:
    """A reply inside the next prompt is not what was generated; a resumed request finds its own."""
    prompt, reply = list(range(10)), list(range(50, 60))
    for tells_apart, num_found in ((False, 16), (True, 8)):
        kv = manager(tells_prompts_apart=tells_apart)
        first = answered("a", prompt, reply)
        compute(kv, first)
        kv.release(first)
        assert compute(kv, make("next turn", [*prompt, *reply])) == num_found
        assert compute(kv, answered("the same again", prompt, reply)) == 16
        assert compute(kv, make("other", prompt)) == 8


def test_where_prompts_are_told_apart_the_place_where_they_end_counts() -> None:
    """The same tokens, of which one more is the prompt's."""
    kv = manager(tells_prompts_apart=True)
    compute(kv, answered("a", [1] * 5, [1] * 8))
    assert compute(kv, answered("b", [1] * 6, [1] * 7)) == 4
    assert compute(kv, answered("c", [1] * 5, [1] * 8)) == 12
    # a prompt that ends with a block: all of the next one is generated
    compute(kv, answered("d", [2] * 4, [2] * 8))
    assert compute(kv, answered("e", [2] * 4, [2] * 8)) == 8
    assert compute(kv, make("f", [2] * 12)) == 4


def test_salts_do_not_share() -> None:
    kv = manager()
    compute(kv, make("a", [1] * 9, cache_salt="x"))
    assert compute(kv, make("b", [1] * 9, cache_salt="y")) == 0
    assert compute(kv, make("c", [1] * 9, cache_salt="x")) == 8


def test_without_caching_nothing_is_found() -> None:
    kv = manager(caching=False)
    compute(kv, make("a", [1] * 9))
    assert compute(kv, make("b", [1] * 9)) == 0


def test_a_request_for_prompt_logprobs_computes_its_whole_prompt_but_others_find_it() -> None:
    kv = manager()
    compute(kv, make("a", [1] * 9))
    assert compute(kv, make("b", [1] * 9, prompt_logprobs=0)) == 0
    assert compute(kv, make("c", [1] * 9)) == 8


def test_admission_that_does_not_fit_changes_nothing() -> None:
    kv = manager(num_blocks=4)
    a = make("a", [1] * 13)
    assert kv.admit(a, kv.find_prefix(a), 13, keep_free=0) is None
    assert kv.num_free_blocks == 3


def test_a_revived_block_counts_as_taken() -> None:
    kv = manager(num_blocks=4)
    a = make("a", [1] * 8)
    compute(kv, a)
    kv.release(a)
    b = make("b", [1] * 8 + [2] * 5)  # four blocks, two of them cached but free
    hit = kv.find_prefix(b)
    assert hit.num_tokens == 8
    assert kv.admit(b, hit, 5, keep_free=0) is None


def test_blocks_that_must_stay_free_are_kept() -> None:
    kv = manager(num_blocks=4)
    a = make("a", [1] * 8)
    hit = kv.find_prefix(a)
    assert kv.admit(a, hit, 8, keep_free=2) is None
    assert kv.admit(a, hit, 8, keep_free=1) is not None


def test_a_running_request_gets_a_block_when_it_enters_it() -> None:
    kv = manager()
    a = make("a", [1] * 4)
    compute(kv, a)
    assert a.num_slots == 4
    new_blocks = kv.extend(a, 5)
    assert new_blocks is not None
    assert [len(blocks) for blocks in new_blocks] == [1]
    assert a.num_slots == 8


def test_a_tail_is_evicted_before_the_beginning() -> None:
    kv = manager(num_blocks=4)
    a = make("a", [1] * 12)
    compute(kv, a)
    kv.release(a)
    b = make("b", [2] * 4)
    compute(kv, b)
    kv.release(b)
    assert kv.find_prefix(make("c", [1] * 13)).num_tokens == 8


def test_reset_waits_for_running_requests() -> None:
    kv = manager()
    a = make("a", [1] * 9)
    compute(kv, a)
    assert not kv.reset_prefix_cache()
    kv.release(a)
    assert kv.reset_prefix_cache()
    assert kv.find_prefix(make("b", [1] * 9)).num_tokens == 0


def test_sliding_groups_give_back_what_no_token_can_see() -> None:
    kv = manager(num_blocks=50, windows=(None, 5))
    a = make("a", [1] * 16)
    compute(kv, a)
    used = 49 - kv.num_free_blocks
    assert used == 8  # four blocks in each group
    kv.extend(a, 17)  # token 16 sees 12..16: blocks 0..2 of the sliding group go, one block comes
    assert 49 - kv.num_free_blocks == used - 3 + 2


def test_a_sliding_hit_needs_only_the_window() -> None:
    kv = manager(num_blocks=50, windows=(None, 5))
    a = make("a", list(range(16)))
    compute(kv, a)
    kv.extend(a, 17)
    kv.release(a)
    hit = kv.find_prefix(make("b", list(range(17))))
    assert hit.num_tokens == 16
    full, sliding = hit.tables
    assert len(full) == len(sliding) == 4
    assert sliding[:3] == [0, 0, 0]
    assert sliding[3] != 0


def test_a_sliding_hit_is_shortened_where_the_window_is_gone() -> None:
    kv = manager(num_blocks=50, windows=(None, 5))
    a = make("a", list(range(16)))
    compute(kv, a)
    kv.extend(a, 17)
    # b continues differently after 8 tokens; the sliding block before them is given back already,
    # but still holds its content until somebody takes it
    assert kv.find_prefix(make("b", [*range(8), 99, 99])).num_tokens == 8
    taken = make("c", [7] * 4 * kv.num_free_blocks)
    hit = kv.find_prefix(taken)
    half = kv.num_free_blocks // 2 * 4
    assert kv.admit(taken, hit, half, keep_free=0) is not None
    assert kv.find_prefix(make("d", [*range(8), 99, 99])).num_tokens == 0


def test_the_longest_request_is_the_one_that_fits_alone() -> None:
    assert manager(num_blocks=11).longest_request(1000) == 40
    assert manager(num_blocks=11).longest_request(30) == 30
    assert manager(num_blocks=11, windows=(None, None)).longest_request(1000) == 20
