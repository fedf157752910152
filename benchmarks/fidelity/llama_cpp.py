"""The same text through llama.cpp's `llama-perplexity`, where a build of it is given.

Knows nothing of: Octavo.
"""

from __future__ import annotations

import re
import subprocess

from benchmarks.fidelity.corpus import TEXT_PATH, WINDOW

_RESULT = re.compile(r"Final estimate: PPL = ([\d.]+)")


def llama_perplexity(program: str, model: str, num_windows: int, num_threads: int) -> float:
    """Perplexity of a GGUF file over the first windows of the text.

    Raises:
        RuntimeError: the program failed, or said something else.
    """
    done = subprocess.run(
        [
            *(program, "-m", model, "-f", str(TEXT_PATH), "-c", f"{WINDOW}", "-b", f"{WINDOW}"),
            *("--chunks", f"{num_windows}", "-t", f"{num_threads}"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    found = _RESULT.search(said)
    if done.returncode or found is None:
        raise RuntimeError(f"{program} failed with {done.returncode}: {said[-400:]}")
    return float(found[1])
