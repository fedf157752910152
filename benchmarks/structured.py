"""What grammars cost: `python benchmarks/structured.py`.

1. Throughput of 32 streams whose outputs a JSON schema constrains, against 32 plain ones, in
   turns.
2. Times between tokens of 8 plain streams while 300 different schemas come and are compiled,
   against those while the same 300 requests come without schemas.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import Any

from streams import Stream, complete, finished, server

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            "required": ["street", "city"],
        },
    },
    "required": ["name", "age", "tags", "address"],
}
#: has no end within the tokens of a stream
ENDLESS = {"type": "array", "items": PERSON, "minItems": 1000}


def schema(number: int) -> dict[str, Any]:
    """A schema like no other: 5 to 44 properties of all types."""
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": 10 + number % 50},
        {"type": "integer", "minimum": number, "maximum": number * 1000 + 1},
        {"type": "string", "pattern": f"^[a-z]{{2,{3 + number % 9}}}-[0-9]+$"},
        {"enum": [f"value {number}", None, number]},
        {"type": "array", "items": PERSON, "maxItems": 3},
        {"anyOf": [{"type": "number"}, {"type": "string", "format": "date"}]},
    ]
    names = [f"p{number}_{index}" for index in range(5 + number % 40)]
    return {
        "type": "object",
        "properties": {name: kinds[index % len(kinds)] for index, name in enumerate(names)},
        "required": names[::2],
    }


async def throughput(port: int, num_streams: int, num_tokens: int, fields: dict[str, Any]) -> float:
    """Tokens per second of streams that begin together."""
    begin_s = time.monotonic()
    bodies = [
        {"prompt": f"Person {i} as JSON: ", "max_tokens": num_tokens, "temperature": 0.7, "seed": i}
        for i in range(num_streams)
    ]
    await asyncio.gather(*(finished(port, {**body, **fields}) for body in bodies))
    return num_streams * num_tokens / (time.monotonic() - begin_s)


async def gaps(port: int, num_streams: int, bodies: list[dict[str, Any]]) -> list[float]:
    """Times between tokens of plain streams while requests come, eight at a time."""
    streams: list[Stream] = []
    are_running = asyncio.Event()

    async def run(number: int) -> None:
        body = {"prompt": [1000 + number, 2000], "max_tokens": 4000, "logprobs": 0}
        async for stream in complete(port, body):
            if len(stream.piece_s) == 1:
                streams.append(stream)
            if len(streams) == num_streams and all(len(s.piece_s) >= 10 for s in streams):
                are_running.set()

    tasks = [asyncio.create_task(run(number)) for number in range(num_streams)]
    await are_running.wait()
    places = asyncio.Semaphore(8)

    async def ask(body: dict[str, Any]) -> None:
        async with places:
            await finished(port, body)

    begin_s = time.monotonic()
    await asyncio.gather(*map(ask, bodies))
    end_s = time.monotonic()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [gap for stream in streams for gap in stream.gaps_s(begin_s, end_s)]


def percentile(values: list[float]) -> float:
    """The 99th."""
    return sorted(values)[int(len(values) * 0.99)]


def shown(values: list[float]) -> str:
    """Middle, 99th percentile and largest, in milliseconds."""
    middle, high = statistics.median(values), percentile(values)
    return f"median {middle * 1e3:.1f}, p99 {high * 1e3:.1f}, max {max(values) * 1e3:.1f} ms"


def rounds(ratios: list[float]) -> str:
    """Of all rounds, the middle first."""
    return f"{statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in sorted(ratios))})"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--schemas", type=int, default=300)
    args, flags = parser.parse_known_args()
    constrained = {"structured_outputs": {"json": ENDLESS}}
    with server("--max-model-len", "8192", *flags) as port:
        ratios = []
        for number in range(args.rounds + 1):
            found = dict[bool, float]()
            for is_bound in (False, True) if number % 2 else (True, False):
                fields = constrained if is_bound else {}
                found[is_bound] = asyncio.run(throughput(port, args.streams, args.tokens, fields))
            plain, bound = found[False], found[True]
            if number:  # the first round opens the library
                ratios.append(bound / plain)
                print(f"plain {plain:.0f}, constrained {bound:.0f} tokens/s: {bound / plain:.3f}")
        print(f"constrained / plain: median {statistics.median(ratios):.3f}")
        p99, largest = list[float](), list[float]()
        for number in range(args.rounds):
            base = number * args.schemas
            bodies = [
                {"prompt": f"Request {base + i}: ", "max_tokens": 1} for i in range(args.schemas)
            ]
            without = asyncio.run(gaps(port, 8, bodies))
            with_schemas = [
                {**body, "structured_outputs": {"json": schema(base + i)}}
                for i, body in enumerate(bodies)
            ]
            during = asyncio.run(gaps(port, 8, with_schemas))
            print(f"gaps while {args.schemas} plain requests come:  {shown(without)}")
            print(f"gaps while {args.schemas} schemas are compiled: {shown(during)}")
            largest.append(max(during) / max(without))
            p99.append(percentile(during) / percentile(without))
        print(f"gaps, schemas / plain: p99 {rounds(p99)}; largest {rounds(largest)}")


if __name__ == "__main__":
    main()
