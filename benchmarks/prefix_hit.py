"""How much sooner the first token comes when the prompt's beginning is known:
`python benchmarks/prefix_hit.py`.

A prompt of 6,000 characters is sent cold, then again with another ending. Printed are both times to
the first token, the least of several rounds, and how many times shorter the second is.
"""

from __future__ import annotations

import argparse
import asyncio
import random

from streams import finished, server

WORDS = ["river", "stone", "lamp", "winter", "cloud", "garden", "letter", "bridge", "music", "salt"]


def text(num_characters: int, seed: int) -> str:
    """Words that no other seed has in this order."""
    rng = random.Random(seed)
    words: list[str] = []
    while sum(map(len, words)) + len(words) < num_characters:
        words.append(rng.choice(WORDS))
    return " ".join(words)[:num_characters]


async def measure(port: int, num_characters: int, seed: int) -> tuple[float, float]:
    """Seconds to the first token: cold, and with the prefix in the cache."""
    prefix = text(num_characters, seed)
    times = []
    for ending in (" One", " Two"):
        stream = await finished(port, {"prompt": prefix + ending, "max_tokens": 1, "logprobs": 0})
        times.append(stream.ttft_s)
    return times[0], times[1]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    args, flags = parser.parse_known_args()
    with server(*flags) as port:
        rounds = [asyncio.run(measure(port, args.characters, seed)) for seed in range(args.rounds)]
    cold, hit = (min(times) for times in zip(*rounds, strict=True))
    print(f"cold: {cold:.3f} s, prefix hit: {hit:.3f} s, {cold / hit:.1f} times shorter")


if __name__ == "__main__":
    main()
