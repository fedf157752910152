"""Which number of compute threads is best: `python benchmarks/threads.py`.

For 1, 2, as many as physical cores, as many as logical CPUs, and the default: tokens per second of
decoding alone, of decoding eight at a time, and of a prompt; the best of several rounds. Each
number has a process of its own. Printed as the table of docs/threads.md; then how much of the best
the default reaches, which should be 90 % or more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

COLUMNS = ("decode, 1 request", "decode, 8 requests", "prompt of 512")


def measure(threads: int | None, rounds: int, model: str | None) -> dict[str, float]:
    """Tokens per second, by column."""
    from octavo import LLM, SamplingParams

    options = {} if threads is None else {"cpu_threads": threads}
    best = dict.fromkeys(COLUMNS, 0.0)
    with LLM(model, enable_prefix_caching=False, max_num_batched_tokens=512, **options) as llm:

        def rate(num_requests: int, num_prompt: int, num_output: int) -> float:
            prompts = [[100 + i] * num_prompt for i in range(num_requests)]
            params = SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True)
            began_s = time.perf_counter()
            llm.generate(prompts, params, use_tqdm=False)
            num_tokens = num_prompt if num_output == 1 else num_output
            return num_requests * num_tokens / (time.perf_counter() - began_s)

        for _ in range(rounds):
            found = (rate(1, 4, 32), rate(8, 4, 16), rate(1, 512, 1))
            best = {c: max(best[c], value) for c, value in zip(COLUMNS, found, strict=True)}
    return best


def in_own_process(threads: int | None, rounds: int, model: str | None) -> dict[str, float]:
    """The same, in a new process: thread pools leave nothing behind."""
    command = [sys.executable, __file__, "--rounds", str(rounds), "--measure", str(threads or 0)]
    command += [] if model is None else ["--model", model]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def candidates() -> list[tuple[str, int | None]]:
    """What to try, by name; None is the default."""
    from octavo.platforms.cpu import cpu_facts

    facts = cpu_facts()
    numbers: dict[int, list[str]] = {1: ["1"]}
    numbers.setdefault(2, []).append("2")
    numbers.setdefault(facts.num_physical_cores, []).append("physical cores")
    numbers.setdefault(len(facts.cpu_affinity), []).append("logical CPUs")
    usable = {n: names for n, names in numbers.items() if n <= len(facts.cpu_affinity)}
    found: list[tuple[str, int | None]] = [
        (f"{n}" + (f" ({', '.join(names)})" if names != [str(n)] else ""), n)
        for n, names in sorted(usable.items())
    ]
    return [*found, ("default", None)]


def table(rounds: int, model: str | None) -> dict[str, dict[str, float]]:
    """Tokens per second by column, by the name of the number of threads."""
    return {name: in_own_process(n, rounds, model) for name, n in candidates()}


def share_of_best(found: dict[str, dict[str, float]]) -> float:
    """The least share of the best number that the default reaches, over the columns."""
    return min(
        found["default"][column] / max(row[column] for row in found.values()) for column in COLUMNS
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model")
    parser.add_argument("--measure", type=int, help="this number alone, as JSON; 0: the default")
    args = parser.parse_args()
    if args.measure is not None:
        print(json.dumps(measure(args.measure or None, args.rounds, args.model)))
        return
    found = table(args.rounds, args.model)
    print("| threads | " + " | ".join(f"{c}, tokens/s" for c in COLUMNS) + " |")
    print("|---|" + "---|" * len(COLUMNS))
    for name, row in found.items():
        print(f"| {name} | " + " | ".join(f"{row[c]:.0f}" for c in COLUMNS) + " |")
    print(f"\nThe default reaches {share_of_best(found):.0%} of the best.")


if __name__ == "__main__":
    main()
