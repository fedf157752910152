"""How much a long prompt delays the streams that are running: `python benchmarks/interference.py`.

Eight streams decode; then a prompt of 6,000 tokens comes. Printed are the longest time between two
tokens of any stream before it came and while it was computed, and how long its first token took.
Every token has an event of its own: the streams ask for logprobs, so that none is held back.
"""

from __future__ import annotations

import argparse
import asyncio
import random

from streams import Stream, complete, finished, server


async def measure(port: int, num_streams: int, num_tokens: int) -> dict[str, float]:
    """One round on a server; see the module. Times are seconds."""
    rng = random.Random(num_tokens)
    streams: list[Stream] = []
    are_running = asyncio.Event()

    async def run(number: int) -> None:
        body = {"prompt": [1000 + number, 2000], "max_tokens": 2000, "logprobs": 0}
        async for stream in complete(port, body):
            if len(stream.piece_s) == 1:
                streams.append(stream)
            if len(streams) == num_streams and all(len(s.piece_s) >= 20 for s in streams):
                are_running.set()

    tasks = [asyncio.create_task(run(number)) for number in range(num_streams)]
    await are_running.wait()
    prompt = [rng.randrange(1000, 40000) for _ in range(num_tokens)]
    long = await finished(port, {"prompt": prompt, "max_tokens": 1, "logprobs": 0})
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    end_s = long.piece_s[0]
    alone = [gap for s in streams for gap in s.gaps_s(until_s=long.sent_s)]
    during = [gap for s in streams for gap in s.gaps_s(long.sent_s, end_s)]
    return {
        "longest gap before, s": max(alone),
        "longest gap during, s": max(during),
        "tokens of a stream during": len(during) / num_streams,
        "time to the long prompt's first token, s": long.ttft_s,
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    args, flags = parser.parse_known_args()
    with server(*flags) as port:
        for number in range(args.rounds):
            found = asyncio.run(measure(port, args.streams, args.tokens + number))
            print(", ".join(f"{name}: {value:.3f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
