"""Five fixed prompts at temperature 0, streamed by the official client, equal a stored transcript.

The prompts are ones whose answers no instruction-set level changes; rewrite the file with
`python -m tests.integration.test_transcript` after a change of the arithmetic, and read it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.integration.server import Server, serving

TRANSCRIPT = Path(__file__).resolve().parents[1] / "data/transcript/smollm2.json"
PROMPTS = [
    "What is 2+2?",
    "How many days are in a week?",
    "What is the capital of Japan?",
    "Count from one to ten.",
    "List the months of the year.",
]
MAX_TOKENS = 48


def ask(server: Server, prompt: str) -> str:
    """The streamed answer, joined."""
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none") as client:
        chunks = client.chat.completions.create(
            model="SmolLM2-135M-Instruct",
            messages=[{"role": "user", "content": prompt}],
            temperature=0,
            max_tokens=MAX_TOKENS,
            stream=True,
        )
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("transcript") / "log") as running:
        yield running


@pytest.mark.parametrize("prompt", PROMPTS)
def test_answer_equals_the_transcript(server: Server, prompt: str) -> None:
    assert ask(server, prompt) == json.loads(TRANSCRIPT.read_text())[prompt]


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512_vnni", "avx512_bf16", "amx"])
def test_every_level_of_this_machine_gives_the_transcript(tmp_path: Path, isa: str) -> None:
    from octavo.ops.library import available_isas  # numpy comes with it: here, not in every test

    expected = json.loads(TRANSCRIPT.read_text())
    if isa not in available_isas():
        assert isa != "scalar"  # only levels this processor lacks are passed over
        return
    with serving(tmp_path / "log", "--isa", isa) as running:
        assert {prompt: ask(running, prompt) for prompt in PROMPTS} == expected


def write() -> None:
    """Writes the transcript anew."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "log") as running:
        answers = {prompt: ask(running, prompt) for prompt in PROMPTS}
    TRANSCRIPT.write_text(json.dumps(answers, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(write())
