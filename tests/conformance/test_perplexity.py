"""What narrow activations and a bfloat16 cache cost: perplexity of the default model on a text.

The same stored weights, computed as served (`--dtype auto`) and in fp32. What is read here are
prompts; where they have an arithmetic of their own, that of generated tokens is measured as well
(`--prompt-dtype int8`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import exp
from pathlib import Path

import pytest

from octavo.ops.interface import StoredTensor
from octavo.ops.plan import PlanOptions
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.tokenizer import load_tokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.facts import read_facts
from tests.fakes.worker_rig import WorkerRig, native_backend

BOUND = 0.005  # relative
WINDOW = 512
# 4,900 tokens: on half as many, arithmetics that are equally exact differ by more than half of
# the bound, as each crosses other rounding boundaries of the int8 activations
TEXT = Path(__file__).parents[2] / "benchmarks" / "fidelity" / "text.txt"


@dataclass
class Reading:
    """A model, and a text to read."""

    hf_config: dict[str, object]
    tensors: dict[str, StoredTensor]
    windows: list[list[int]]

    def perplexity(self, dtype: str, *, as_generated: bool = False) -> float:
        """Of all windows; `as_generated`: in the arithmetic of generated tokens."""
        options = PlanOptions(prompts_as_generated=as_generated)
        rig = WorkerRig(
            self.hf_config,
            self.tensors,
            dtype=dtype,
            make_backend=partial(native_backend, options=options),
            max_model_len=WINDOW,
            max_tokens=WINDOW,
        )
        params = SamplingParams(temperature=0.0, prompt_logprobs=0)
        total, count = 0.0, 0
        for number, ids in enumerate(self.windows):
            rig.add(f"{number}", ids, params)
            rig.step({f"{number}": len(ids)})
            for entry in rig.generated(f"{number}").prompt_logprobs[1:]:
                assert entry is not None
                total -= entry.logprobs[0]
                count += 1
            rig.finish(f"{number}")
        rig.close()
        return exp(total / count)


@pytest.fixture(scope="module")
def reading(default_model: str) -> Reading:
    facts, checkpoint = read_facts(default_model), open_checkpoint(default_model)
    tensors = {name: checkpoint.get(name) for name in checkpoint.tensor_names}
    ids = load_tokenizer(default_model).encode(TEXT.read_text())
    windows = [ids[first : first + WINDOW] for first in range(0, len(ids), WINDOW)]
    return Reading(facts.hf_config, tensors, windows)


@pytest.fixture(scope="module")
def exact(reading: Reading) -> float:
    return reading.perplexity("float32")


@pytest.mark.parametrize("as_generated", [False, True], ids=["prompts", "generated tokens"])
def test_served_perplexity_is_that_of_fp32(
    reading: Reading, exact: float, as_generated: bool
) -> None:
    served = reading.perplexity("auto", as_generated=as_generated)
    difference = served / exact - 1
    print(f"perplexity {served:.4f}, fp32 {exact:.4f}: {difference:+.2%} (bound {BOUND:.1%})")
    assert abs(difference) <= BOUND
