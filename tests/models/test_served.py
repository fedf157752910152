"""Real models as they are served: stored weight types, int8 activations, bfloat16 cache."""

from __future__ import annotations

from math import exp
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.ops.interface import StoredTensor
from octavo.tokenizer.tokenizer import load_tokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.facts import read_facts
from tests.fakes.worker_rig import WorkerRig
from tests.integration.server import serving
from tests.models.conftest import path_of
from tests.models.texts import LICENSE, PROMPTS

BOUND = 0.01  # relative, on perplexity
WINDOW, NUM_WINDOWS = 640, 2  # longer than Gemma's window of 512
GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


def open_rig(path: str, dtype: str) -> WorkerRig:
    facts, checkpoint = read_facts(path), open_checkpoint(path)
    tensors: dict[str, StoredTensor] = {n: checkpoint.get(n) for n in checkpoint.tensor_names}
    rig = WorkerRig(
        facts.hf_config,
        tensors,
        architecture=facts.architecture,
        dtype=dtype,
        max_model_len=WINDOW,
        max_tokens=WINDOW,
        max_requests=1,
    )
    checkpoint.close()
    return rig


def perplexity(rig: WorkerRig, ids: list[int]) -> float:
    total, count = 0.0, 0
    for number in range(NUM_WINDOWS):
        rig.add("a", ids[number * WINDOW :][:WINDOW], SamplingParams(prompt_logprobs=0))
        rig.step({"a": WINDOW})
        for entry in rig.generated("a").prompt_logprobs[1:]:
            assert entry is not None
            total -= entry.logprobs[0]
            count += 1
        rig.finish("a")
    rig.close()
    return exp(total / count)


def test_served_perplexity_is_that_of_fp32(model_path: str) -> None:
    ids = load_tokenizer(model_path).encode(LICENSE)
    exact, served = (perplexity(open_rig(model_path, d), ids) for d in ("float32", "auto"))
    difference = served / exact - 1
    name = Path(model_path).stem
    print(f"{name}: {served:.4f}, fp32 {exact:.4f}: {difference:+.2%} (bound {BOUND:.0%})")
    assert abs(difference) <= BOUND


def test_stored_bytes_are_those_of_the_file(model_path: str) -> None:
    rig = open_rig(model_path, "auto")
    kept = rig.worker.memory_report().weight_bytes
    rig.close()
    ratio = kept / read_facts(model_path).weight_bytes
    print(f"{Path(model_path).stem}: {kept / 2**20:.1f} MiB kept, {ratio:.4f} of the file's")
    assert ratio <= 1.02


def test_completions_are_sensible_alone_and_together(model_path: str) -> None:
    with LLM(model_path, max_model_len=1024) as llm:
        together = llm.generate(PROMPTS, GREEDY)
        alone = [llm.generate([prompt], GREEDY)[0] for prompt in PROMPTS]
    assert [o.outputs[0].token_ids for o in together] == [o.outputs[0].token_ids for o in alone]
    assert " 21," in together[3].outputs[0].text


def test_qwen_writes_the_function_it_is_asked_for_and_stops() -> None:
    question = "Write a Python function reverse(s) that reverses a string. Only the code."
    with LLM(str(path_of("qwen2.5-coder-0.5b")), max_model_len=1024) as llm:
        (output,) = llm.chat(
            [{"role": "user", "content": question}],
            SamplingParams(temperature=0.0, max_tokens=200),
        )
    answer = output.outputs[0]
    assert answer.finish_reason == "stop"
    code = answer.text.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    reverse = names["reverse"]
    assert callable(reverse)
    assert reverse("octavo") == "ovatco"


@pytest.mark.parametrize("name", ["gemma3-270m", "qwen2.5-coder-0.5b"])
def test_the_server_answers_as_llm_does(name: str, tmp_path: Path) -> None:
    path = str(path_of(name))
    with LLM(path, max_model_len=512) as llm:
        (expected,) = llm.generate([PROMPTS[0]], GREEDY)
    with serving(tmp_path / "log", "--max-model-len", "512", model=path) as server:
        answer = server.complete(PROMPTS[0], temperature=0, max_tokens=24)
        assert answer["choices"][0]["text"] == expected.outputs[0].text
