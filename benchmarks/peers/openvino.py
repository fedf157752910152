"""OpenVINO GenAI under the loads of `scenarios.py`, in process: it has no HTTP server.

Run by the interpreter of its own environment:

    .cache/peers/openvino/bin/python -m benchmarks.peers.openvino FOLDER --load '{"n": 32, ...}'

`concurrency` requests run at a time; all prompts are those that `load.py` would send.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any

from benchmarks.peers.load import Load, cut, shared_prefix

CACHE_GB = 2
BATCHED_TOKENS = 512


def run(folder: str, load: Load, threads: int) -> dict[str, Any]:
    """Rates of the load, as `load.py` reports them."""
    # only in its own environment
    import numpy as np
    import openvino_genai as ov  # type: ignore[import-not-found]
    import tokenizers
    from openvino import Tensor  # type: ignore[import-not-found]

    scheduler = ov.SchedulerConfig()
    scheduler.cache_size = CACHE_GB
    scheduler.max_num_batched_tokens = BATCHED_TOKENS
    scheduler.max_num_seqs = load.concurrency
    scheduler.enable_prefix_caching = load.shared_chars > 0
    pipeline = ov.ContinuousBatchingPipeline(
        folder, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
    )
    config = ov.GenerationConfig()
    config.max_new_tokens = load.out
    config.ignore_eos = True
    config.apply_chat_template = False
    rng = random.Random(load.seed)
    prompts = [shared_prefix(load) + cut(rng, load.prompt_chars) for _ in range(load.n)]
    # its own conversion of the tokenizer splits text in another way, or fails: it gets the ids
    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    ids = [tokenizer.encode(prompt).ids for prompt in prompts]
    hello = Tensor(np.array([tokenizer.encode("Hello").ids], np.int64))
    pipeline.generate([hello], [config])  # the first call compiles
    waiting = [(number, Tensor(np.array([row], np.int64))) for number, row in enumerate(ids)]
    handles: list[Any] = []
    start = time.perf_counter()
    out = 0
    while waiting or handles:
        while waiting and len(handles) < load.concurrency:
            number, prompt = waiting.pop(0)
            handles.append(pipeline.add_request(number, prompt, config))
        pipeline.step()
        for handle in list(handles):
            if handle.can_read():
                out += sum(len(one.generated_ids) for one in handle.read().values())
            if handle.get_status() != ov.GenerationStatus.RUNNING:
                handles.remove(handle)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "output_tokens": out,
        "out_tps": out / seconds,
        "total_tps": (out + sum(map(len, ids))) / seconds,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="of the exported model")
    parser.add_argument("--load", type=json.loads, default={})
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    print(json.dumps(run(args.folder, Load(**args.load), args.threads)))


if __name__ == "__main__":
    main()
