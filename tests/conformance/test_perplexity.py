"""What int8 activations and a bfloat16 cache cost: perplexity of the default model on a fixed text.

The same stored weights, computed as served (`--dtype auto`) and in fp32.
"""

from __future__ import annotations

from math import exp
from pathlib import Path

from octavo.ops.interface import StoredTensor
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.tokenizer import load_tokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.facts import read_facts
from tests.fakes.worker_rig import WorkerRig

BOUND = 0.005  # relative
WINDOW = 512
# 4,900 tokens: on half as many, arithmetics that are equally exact differ by more than half of
# the bound, as each crosses other rounding boundaries of the int8 activations
TEXT = Path(__file__).parents[2] / "benchmarks" / "fidelity" / "text.txt"


def perplexity(
    hf_config: dict[str, object], tensors: dict[str, StoredTensor], windows: list, dtype: str
) -> float:
    rig = WorkerRig(hf_config, tensors, dtype=dtype, max_model_len=WINDOW, max_tokens=WINDOW)
    params = SamplingParams(temperature=0.0, prompt_logprobs=0)
    total, count = 0.0, 0
    for number, ids in enumerate(windows):
        rig.add(f"{number}", ids, params)
        rig.step({f"{number}": len(ids)})
        for entry in rig.generated(f"{number}").prompt_logprobs[1:]:
            assert entry is not None
            total -= entry.logprobs[0]
            count += 1
        rig.finish(f"{number}")
    rig.close()
    return exp(total / count)


def test_served_perplexity_is_that_of_fp32(default_model: str) -> None:
    facts, checkpoint = read_facts(default_model), open_checkpoint(default_model)
    tensors = {name: checkpoint.get(name) for name in checkpoint.tensor_names}
    ids = load_tokenizer(default_model).encode(TEXT.read_text())
    windows = [ids[first : first + WINDOW] for first in range(0, len(ids), WINDOW)]
    exact = perplexity(facts.hf_config, tensors, windows, "float32")
    served = perplexity(facts.hf_config, tensors, windows, "auto")
    difference = served / exact - 1
    print(f"perplexity {served:.4f}, fp32 {exact:.4f}: {difference:+.2%} (bound {BOUND:.1%})")
    assert abs(difference) <= BOUND
