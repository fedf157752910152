"""The prefix cache of a real server as users see it: `cached_tokens`, metrics that add up, memory
that stays flat; a small random model, so that thousands of requests take seconds."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.tiny_checkpoint import CHAT_TEMPLATE
from tests.fakes.tiny_folder import WINDOW, write_tiny_folder
from tests.integration.replies import CHAT, COMPLETIONS, chunks, user, wait_idle
from tests.integration.server import Server, serving

BLOCK_SIZE, NUM_BLOCKS = 16, 8
#: of the server's processes together over 10,000 requests; a leak of 100 bytes per request is more
MAX_GROWTH_BYTES = 1_000_000


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_folder(tmp_path_factory.mktemp("prefix") / "tiny")


def started(folder: Path, tiny: str, *args: str) -> Any:
    return serving(
        folder / "log",
        *("--num-gpu-blocks-override", str(NUM_BLOCKS + 1)),  # block 0 is never used
        *("--max-model-len", str(WINDOW)),
        *("--chat-template", CHAT_TEMPLATE),
        "--enable-prompt-tokens-details",
        *args,
        model=tiny,
        env={"VLLM_SERVER_DEV_MODE": "1"},
    )


@pytest.fixture(scope="module")
def cramped(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("cramped"), tiny) as server:
        yield server
        assert "Traceback" not in server.log


def forget(server: Server) -> None:
    wait_idle(server)
    assert server.post("/reset_prefix_cache", None) == (200, {"success": True})


# -- cached_tokens --------------------------------------------------------------------------------

TEXT = "The quick brown fox jumps over the lazy dog. 0123456789"  # a token per character


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_repeated_prompt_says_how_much_of_it_was_cached(
    cramped: Server, path: str, is_streamed: bool
) -> None:
    forget(cramped)
    body = {"messages": user(TEXT)} if path == CHAT else {"prompt": TEXT}
    body |= {"max_tokens": 2, "temperature": 0}

    def usage(**more: Any) -> dict[str, Any]:
        if not is_streamed:
            reply = cramped.post(path, {**body, **more})[1]
        else:
            asked = {**body, **more, "stream_options": {"include_usage": True}}
            reply = chunks(cramped, path, asked)[-1]
        found: dict[str, Any] = reply["usage"]
        return found

    first, second = usage(), usage()
    assert first["prompt_tokens_details"] == {"cached_tokens": 0}
    whole_blocks = (first["prompt_tokens"] - 1) // BLOCK_SIZE * BLOCK_SIZE
    assert whole_blocks >= 3 * BLOCK_SIZE
    assert second["prompt_tokens_details"] == {"cached_tokens": whole_blocks}
    assert usage(cache_salt="mine")["prompt_tokens_details"] == {"cached_tokens": 0}
    assert usage(cache_salt="mine")["prompt_tokens_details"] == {"cached_tokens": whole_blocks}
    assert usage(cache_salt="yours")["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("salt", ["", "a/b", "a@b", "a\\b", "a\0b", "x" * 129])
def test_a_salt_that_is_no_name_is_refused(cramped: Server, path: str, salt: str) -> None:
    body = {"messages": user("hi")} if path == CHAT else {"prompt": "hi"}
    status, reply = cramped.post(path, {**body, "cache_salt": salt})
    assert (status, reply["error"]["param"]) == (400, "cache_salt")


# -- metrics --------------------------------------------------------------------------------------


def counters(server: Server) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All monotonic samples of the engine: counters, and counts and buckets of histograms."""
    page = server.request("GET", "/metrics")[2].decode()
    found = {}
    for family in text_string_to_metric_families(page):
        if not family.name.startswith("vllm:") or family.type not in ("counter", "histogram"):
            continue
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith("_total"), sample.name
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def total(samples: dict[Any, float], name: str, **labels: str) -> float:
    """Sum of the samples of one name whose labels match."""
    values = [
        value
        for (found, have), value in samples.items()
        if found == f"vllm:{name}" and labels.items() <= dict(have).items()
    ]
    assert values, name
    return sum(values)


def test_c115_metrics_add_up_after_preemptions_without_a_shared_prefix(
    tmp_path: Path, tiny: str
) -> None:
    rng = random.Random(0)
    with started(tmp_path, tiny) as server:
        bodies = [
            {
                # the first token differs, so nothing can be shared
                "prompt": [number, *rng.choices(range(256), k=rng.randrange(60))],
                "max_tokens": rng.choice([1, 10, 50]),
                "temperature": 1,
                "seed": number,
                "ignore_eos": number % 2 == 0,
            }
            for number in range(64)
        ]
        pages = []
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.is_set():
                pages.append(counters(server))
                is_over.wait(0.02)

        with ThreadPoolExecutor(9) as pool:
            watching = pool.submit(watch)
            replies = list(pool.map(lambda body: server.post(COMPLETIONS, body), bodies))
            is_over.set()
            watching.result()
        assert all(status == 200 for status, _ in replies)
        wait_idle(server)
        pages.append(counters(server))
        usages = [reply["usage"] for _, reply in replies]
        reasons = Counter(reply["choices"][0]["finish_reason"] for _, reply in replies)
        assert server.metric("vllm:kv_cache_usage_perc") == 0
    for before, after in itertools.pairwise(pages):
        assert before.keys() <= after.keys()
        assert all(after[key] >= value for key, value in before.items())
    last = pages[-1]
    num_prompt_tokens = sum(usage["prompt_tokens"] for usage in usages)
    assert total(last, "num_preemptions_total") > 0, "the cache was not small enough"
    assert total(last, "prefix_cache_hits_total") == 0
    assert total(last, "prefix_cache_queries_total") == num_prompt_tokens
    assert total(last, "prompt_tokens_total") == num_prompt_tokens
    assert total(last, "prompt_tokens_cached_total") == 0
    assert total(last, "prompt_tokens_by_source_total", source="local_compute") == num_prompt_tokens
    assert total(last, "prompt_tokens_by_source_total") == num_prompt_tokens
    assert all(usage["prompt_tokens_details"] == {"cached_tokens": 0} for usage in usages)
    num_generated = sum(usage["completion_tokens"] for usage in usages)
    assert total(last, "generation_tokens_total") == num_generated
    assert total(last, "request_generation_tokens_sum") == num_generated
    assert total(last, "request_prompt_tokens_sum") == num_prompt_tokens
    assert total(last, "request_success_total") == len(bodies)
    for reason, number in reasons.items():
        assert total(last, "request_success_total", finished_reason=reason) == number
    assert total(last, "e2e_request_latency_seconds_count") == len(bodies)
    preemptions = total(last, "request_num_preemptions_sum")
    assert preemptions == total(last, "num_preemptions_total")


# -- memory ---------------------------------------------------------------------------------------


def private_bytes(server: Server) -> int:
    """RssAnon and swap of the server's processes."""
    kib = 0
    for process in (psutil.Process(server.pid), *server.children()):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "VmSwap:")):
                kib += int(line.split()[1])
    return kib * 1024


async def one_token_each(port: int, prompts: list[list[int]], num_clients: int) -> int:
    """Asks for one token after each prompt; how many were answered so."""
    waiting = iter(prompts)

    async def client() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        num_answered = 0
        for prompt in waiting:
            body = json.dumps({"prompt": prompt, "max_tokens": 1}).encode()
            head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            (length,) = [
                int(line[15:]) for line in answer.split(b"\r\n") if line[:15] == b"content-length:"
            ]
            num_answered += json.loads(await reader.readexactly(length))["usage"][
                "completion_tokens"
            ]
        writer.close()
        return num_answered

    return sum(await asyncio.gather(*(client() for _ in range(num_clients))))


def test_c103_ten_thousand_different_prompts_leave_nothing_behind(
    tmp_path: Path, tiny: str
) -> None:
    with started(tmp_path, tiny, "--num-gpu-blocks-override", "200") as server:
        sizes = []
        for begin in range(0, 14_000, 2_000):  # the first 4,000 are the warm-up
            # 20 tokens, of which a block is named; the first ones tell all prompts apart
            prompts = [[*divmod(n, 250), *[n % 7] * 18] for n in range(begin, begin + 2_000)]
            assert asyncio.run(one_token_each(server.port, prompts, num_clients=16)) == 2_000
            wait_idle(server)
            sizes.append(private_bytes(server))
        assert server.metric("vllm:prefix_cache_hits_total") == 0
        forget(server)  # no block is lost: all can be forgotten
        assert sizes[-1] - sizes[1] < MAX_GROWTH_BYTES, sizes
