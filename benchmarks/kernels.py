"""Linear kernels alone: GOP/s and GB/s per weight kind and number of rows, against measured peaks.

The peaks (int8, bf16 and f32 multiply-adds, reading memory) are measured in the same run by
benchmarks/peak.cpp, built with the machine's compiler. One layer-sized matrix per call, walking
over copies that together have the size of a model's weights, so that few rows read from memory as a
model does. Every figure is the best of many short runs, and quantising the activations is part of
it.

    python benchmarks/kernels.py [--isa avx2] [--kinds Q4_1 Q8_0] [--rows 1 8 32 512]
        [--shape 1536 576] [--megabytes 96] [--threads 2] [--prompts] [--json FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.library import Library, NativeWeight, ThreadPool, load_library
from octavo.ops.program import ElementType

KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "BF16", "F32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", help="level of the library (default: the best that runs here)")
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 4, 8, 32, 128, 512])
    parser.add_argument("--shape", nargs=2, type=int, default=[1536, 768], metavar=("N", "K"))
    parser.add_argument("--megabytes", type=int, default=96, help="weights walked over in all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", action="store_true", help="rows are tokens of prompts")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    peaks = measure_peaks(args.threads, args.megabytes)
    print(" ".join(f"{name}={value:.1f}" for name, value in peaks.items()))
    library = load_library(args.isa)
    pool = library.create_pool(args.threads, spin_us=50)
    print(f"{library.isa}, {args.threads} threads, weights [{args.shape[0]}, {args.shape[1]}]")
    print("kind   rows     GOP/s  of peak      GB/s  of read   of min(compute, read)")
    results = []
    for kind in args.kinds:
        for row in measure_kind(library, pool, GGMLType[kind], args):
            bf16 = "tile_bf16_gops" if library.isa == "amx" else "bf16_gops"
            read_as = library.input_type(GGMLType[kind], is_prompt=args.prompts)
            operation = {ElementType.BF16: bf16, ElementType.F32: "f32_gops"}.get(
                ElementType(read_as), "int8_gops"
            )
            peak = peaks.get(operation, peaks["f32_gops"])
            compute, read = row["gops"] / peak, row["gbs"] / peaks["read_gbs"]
            results.append({"kind": kind, **row, "of_peak": compute, "of_read": read})
            print(
                f"{kind:5} {row['rows']:5} {row['gops']:9.1f} {compute:7.1%} {row['gbs']:10.2f} "
                f"{read:7.1%} {max(compute, read):10.1%}",
                flush=True,
            )
    pool.close()
    if args.json:
        args.json.write_text(json.dumps({"peaks": peaks, "isa": library.isa, "rows": results}))


def measure_peaks(num_threads: int, megabytes: int) -> dict[str, float]:
    """Builds and runs peak.cpp."""
    source = Path(__file__).with_name("peak.cpp")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peak"
        build = ["c++", "-std=c++20", "-O2", "-march=native", "-pthread", "-Wno-uninitialized"]
        subprocess.run([*build, str(source), "-o", str(program)], check=True)
        command = [str(program), str(num_threads), str(megabytes)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in map(str.split, lines.splitlines())}


def measure_kind(
    library: Library, pool: ThreadPool, kind: GGMLType, args: argparse.Namespace
) -> list[dict[str, float]]:
    """One result per number of rows."""
    n, k = args.shape
    first = NativeWeight(library, pool, random_tensor(kind, n, k), kind)
    copies = max(args.megabytes * 2**20 // first.stored_bytes, 1)
    weights = [first]
    weights += [
        NativeWeight(library, pool, random_tensor(kind, n, k), kind) for _ in range(copies - 1)
    ]
    results = []
    for rows in args.rows:
        x = np.random.default_rng(1).standard_normal((rows, k)).astype(np.float32)
        out = aligned_rows(rows, n)
        seconds = best_seconds(library, pool, weights, x, out, is_prompt=args.prompts)
        results.append(
            {
                "rows": rows,
                "gops": 2 * rows * n * k / seconds / 1e9,
                "gbs": first.stored_bytes / seconds / 1e9,
            }
        )
    for weight in weights:
        weight.close()
    return results


def best_seconds(
    library: Library,
    pool: ThreadPool,
    weights: list[NativeWeight],
    x: np.ndarray,
    out: np.ndarray,
    *,
    is_prompt: bool,
) -> float:
    """Seconds of one call, averaged over a walk through the weights; the best of several walks."""
    outs = (ctypes.c_void_p * 1)(out.ctypes.data)
    # arguments are made before: looking them up takes as long as a tenth of one row's product
    call, is_prompts, rows, data = library.ov_linear, int(is_prompt), len(x), x.ctypes.data
    handles = [(ctypes.c_void_p * 1)(weight.handle) for weight in weights]
    calls = [(pool.handle, 1, handle, is_prompts, rows, data, outs) for handle in handles]
    count = min(len(calls), max(int(1e9 / (2 * x.size * out.shape[1])), 1))
    best = float("inf")
    end = time.perf_counter() + 0.7
    first = 0  # each walk goes on where the last one ended
    while time.perf_counter() < end:
        start = time.perf_counter()
        for i in range(count):
            call(*calls[(first + i) % len(calls)])
        best = min(best, (time.perf_counter() - start) / count)
        first += count
    return best


def aligned_rows(rows: int, cols: int) -> np.ndarray:
    """f32 [rows, cols] on a cache line's border, as buffers of plans are: numpy's are not, and each
    row of a tile would be stored in two lines."""
    memory = np.zeros(rows * cols + 16, np.float32)
    first = -memory.ctypes.data % 64 // 4
    return memory[first : first + rows * cols].reshape(rows, cols)


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
