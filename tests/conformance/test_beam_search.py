"""Beam search against transformers, where the rules agree: no token ends an output."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from octavo import LLM
from octavo.sampling_params import BeamSearchParams
from tests.fakes.tiny_folder import write_tiny_folder

PROMPTS = [[256, 72, 101], [256, 10, 20, 30, 40, 50]]


@pytest.mark.parametrize(("width", "max_tokens"), [(1, 6), (2, 8), (5, 12)])
def test_outputs_equal_those_of_transformers(tmp_path: Path, width: int, max_tokens: int) -> None:
    folder = write_tiny_folder(tmp_path, "float32")
    params = BeamSearchParams(beam_width=width, max_tokens=max_tokens, ignore_eos=True)
    with LLM(folder, dtype="float32") as llm:
        outputs = llm.beam_search(PROMPTS, params)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        expected = model.generate(
            torch.tensor([prompt]),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            use_cache=True,
        )
        got = [one.token_ids for one in output.outputs]
        assert got == expected[:, len(prompt) :].tolist()
        assert all(one.finish_reason == "length" for one in output.outputs)
