"""Linear kernels alone: GOP/s and GB/s per weight kind and number of rows, beside the machine's
limits of the same moment.

A plan of linears walks over copies of one matrix that together have the size of a model's weights,
so that few rows read from memory as a model does; before each linear the activations are
quantised, or rounded, as it wants them. A walk takes some milliseconds. The limits (multiply-adds
of the kind's arithmetic, and reading as much memory as the copies have) are measured before and
after it, over and over: a share is the median of walk / limits around it, as a machine that others
use, too, changes its speed within a fraction of a second.

    python -m benchmarks.kernels [--isa avx2] [--kinds Q4_1 Q8_0] [--rows 1 8 32 512]
        [--shape 1536 768] [--megabytes 96] [--threads 2] [--prompts] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine_peaks import Peaks
from octavo.ops.backend import KVPool
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.library import Library, NativeWeight, ThreadPool, load_library
from octavo.ops.plan import Plan, PlanOptions
from octavo.ops.program import Buffer, ElementType, Instruction, Op, Operand, Program, Rows
from octavo.ops.step import StepArrays

KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "BF16", "F32")
#: of a walk at least, so that it takes some milliseconds
WALK_OPERATIONS = 4e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", help="level of the library (default: the best that runs here)")
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 4, 8, 32, 128, 512])
    parser.add_argument("--shape", nargs=2, type=int, default=[1536, 768], metavar=("N", "K"))
    parser.add_argument("--megabytes", type=int, default=96, help="weights walked over in all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", action="store_true", help="rows are tokens of prompts")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    library = load_library(args.isa)
    pool = library.create_pool(args.threads, spin_us=50)
    peaks = Peaks(args.threads)
    print(f"{library.isa}, {args.threads} threads, weights [{args.shape[0]}, {args.shape[1]}]")
    print("kind   rows     GOP/s  of peak      GB/s  of read   of min(compute, read)")
    results = []
    for kind in args.kinds:
        for row in measure_kind(library, pool, peaks, GGMLType[kind], args):
            results.append({"kind": kind, **row})
            print(
                f"{kind:5} {row['rows']:5} {row['gops']:9.1f} {row['of_peak']:7.1%} "
                f"{row['gbs']:10.2f} {row['of_read']:7.1%} {row['of_limit']:10.1%}",
                flush=True,
            )
    pool.close()
    if args.json:
        args.json.write_text(json.dumps({"isa": library.isa, "rows": results}))


def measure_kind(
    library: Library, pool: ThreadPool, peaks: Peaks, kind: GGMLType, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """One result per number of rows."""
    n, k = args.shape
    tensor = random_tensor(kind, n, k)
    weights = [NativeWeight(library, pool, tensor, kind)]
    copies = max(args.megabytes * 2**20 // weights[0].stored_bytes, 1)
    weights += [NativeWeight(library, pool, tensor, kind) for _ in range(copies - 1)]
    read_as = ElementType(library.input_type(kind, is_prompt=args.prompts))
    results = []
    for num_rows in args.rows:
        count = min(len(weights), max(int(WALK_OPERATIONS / (2 * num_rows * n * k)), 1))
        plan = linears(library, pool, weights[:count], num_rows)
        step = StepArrays(max_tokens=num_rows, max_requests=1, num_groups=1, max_blocks=1)
        step.num_tokens, step.num_requests = num_rows, 0
        step.num_generated = 0 if args.prompts else num_rows
        found = measure(
            lambda plan=plan, step=step: plan.forward(step),
            peaks,
            lambda count=count: library.probe_weights(pool, weights[:count], 1) / 1e9,
            compute=arithmetic(library.isa, read_as),
            giga_operations=2e-9 * num_rows * n * k * count,
            gigabytes=1e-9 * weights[0].stored_bytes * count,
            seconds=args.seconds,
        )
        results.append({"rows": num_rows, **found})
        plan.close()
    for weight in weights:
        weight.close()
    return results


def arithmetic(isa: str, read_as: ElementType) -> str:
    """Which of the peaks bounds products of inputs of a type."""
    bf16 = "tile_bf16_gops" if isa == "amx" else "bf16_gops"
    names = {ElementType.BF16: bf16, ElementType.F32: "f32_gops"}
    return names.get(read_as, "int8_gops")


def linears(library: Library, pool: ThreadPool, weights: list[NativeWeight], max_rows: int) -> Plan:
    """One linear after another of the same activations, which are prepared again for each."""
    program = Program()
    n, k = weights[0].n, weights[0].k

    def buffer(cols: int, dtype: ElementType) -> Operand:
        return Operand(program.add_buffer(Buffer(Rows.T, cols, dtype)))

    x, out = buffer(k, ElementType.F32), buffer(n, ElementType.F32)
    read_as = ElementType(library.input_type(weights[0].kind, is_prompt=False))
    prepared = x if read_as == ElementType.F32 else buffer(k, read_as)
    for index in range(len(weights)):
        if prepared is not x:
            prepare = Instruction(Op.PREPARE, Rows.T, [x], [prepared], i=[read_as])
            program.forward.append(prepare)
        program.forward.append(
            Instruction(Op.LINEAR, Rows.T, [prepared], [out], [index], [None], [0])
        )
    plan = Plan(
        library,
        pool,
        program,
        weights,
        vocab_size=1,
        max_tokens=max_rows,
        max_requests=1,
        kv_dtype="bfloat16",
        options=PlanOptions(is_fused=False, is_arena_shared=False),
    )
    plan.allocate_kv(KVPool(1, 16, 64, []))
    plan.write(x.buffer, np.random.default_rng(1).standard_normal((max_rows, k)).astype(np.float32))
    return plan


def measure(
    walk: Callable[[], object],
    peaks: Peaks,
    read_gbs: Callable[[], float],
    *,
    compute: str,
    giga_operations: float,
    gigabytes: float,
    seconds: float,
) -> dict[str, Any]:
    """Medians over many walks, each between two measurements of both limits.

    Args:
        read_gbs: reads the same weights where they lie, as memory differs by where the host has
            placed it.
        compute: the peak of its arithmetic.
        giga_operations, gigabytes: of a walk.
    """
    names = dict.fromkeys((compute, "int8_gops", "read_gbs"))

    def limits() -> dict[str, float]:
        return {name: read_gbs() if name == "read_gbs" else peaks.rate(name) for name in names}

    walk()
    after = limits()
    times_s: list[float] = []
    around: dict[str, list[float]] = {name: [] for name in names}
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        begin_s = time.perf_counter()
        walk()
        times_s.append(time.perf_counter() - begin_s)
        before, after = after, limits()
        for name in names:
            around[name].append((before[name] + after[name]) / 2)

    def shares(amount: float, name: str) -> list[float]:
        return [amount / t / limit for t, limit in zip(times_s, around[name], strict=True)]

    of_peak, of_read = shares(giga_operations, compute), shares(gigabytes, "read_gbs")
    return {
        "gops": giga_operations / statistics.median(times_s),
        "gbs": gigabytes / statistics.median(times_s),
        "of_peak": statistics.median(of_peak),
        "of_int8_peak": statistics.median(shares(giga_operations, "int8_gops")),
        "of_read": statistics.median(of_read),
        "of_limit": statistics.median(map(max, of_peak, of_read)),
        "limits": {name: statistics.median(values) for name, values in around.items()},
    }


def random_tensor(kind: GGMLType, n: int, k: int) -> StoredTensor:
    """Blocks of random bytes with small scales."""
    elements, block_bytes = BLOCK_SHAPE[kind]
    rng = np.random.default_rng(0)
    if kind in (GGMLType.F32, GGMLType.BF16):
        values = rng.standard_normal((n, k)).astype(np.float32)
        if kind == GGMLType.BF16:
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        return StoredTensor("random", kind, (n, k), memoryview(values.tobytes()))
    blocks = rng.integers(0, 256, (n * k // elements, block_bytes), dtype=np.uint8)
    # every f16 in a block begins at 0, 2 or (Q6_K) at the end; 0x2000 is 2^-7
    for at in (block_bytes - 2,) if kind == GGMLType.Q6_K else (0, 2):
        blocks[:, at : at + 2] = (0, 0x20)
    return StoredTensor("random", kind, (n, k), memoryview(blocks.tobytes()))


if __name__ == "__main__":
    main()
