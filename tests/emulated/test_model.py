"""The default model, as `LLM` runs it, on every level: the answers of the stored transcript.

Part of `make test-isa`, where no server is fast enough; on other machines
tests/integration/test_transcript.py asks the same of a server.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.ops.library import available_isas

TRANSCRIPT = Path(__file__).resolve().parents[1] / "data/transcript/smollm2.json"
PROMPT = "What is 2+2?"
MAX_TOKENS = 5


@pytest.mark.parametrize("isa", available_isas())
def test_every_level_gives_the_transcript(isa: str) -> None:
    expected = json.loads(TRANSCRIPT.read_text(encoding="utf-8"))[PROMPT]
    with LLM(isa=isa, max_model_len=128) as llm:
        (output,) = llm.chat(
            [{"role": "user", "content": PROMPT}],
            SamplingParams(temperature=0, max_tokens=MAX_TOKENS),
        )
    text = output.outputs[0].text
    assert len(text.split()) >= 3
    assert expected.startswith(text)
