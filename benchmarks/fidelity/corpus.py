"""What the models read: a fixed text in windows, and prompts to go on with.

The text is prose and Python of this project as they were when the benchmark was written, so no
model has been trained on it and its licence is the project's. It does not follow the project:
figures stay comparable.

Knows nothing of: models, scores.
"""

from __future__ import annotations

from pathlib import Path

from octavo.tokenizer.tokenizer import Tokenizer

TEXT_PATH = Path(__file__).with_name("text.txt")
WINDOW = 1024  # tokens: twice Gemma's sliding window
NUM_WINDOWS = 2

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village at the edge of a great forest,",
    "def fibonacci(n):\n",
    "Water boils at a lower temperature on a mountain because",
    "import json\n\ndef read_config(path):\n",
    "La Revolution francaise a commence en",
    "Q: What is the difference between a process and a thread?\nA:",
    "Ingredients: 200 g flour, 2 eggs, 100 ml milk. Instructions: 1.",
)


def windows(tokenizer: Tokenizer, num_windows: int) -> list[list[int]]:
    """Consecutive pieces of the text, `WINDOW` tokens each.

    The rule is llama-perplexity's, so that its figures can be compared: the whole text is
    tokenised once; where the model begins texts with a BOS token, it stands in the place of each
    window's first token.

    Raises:
        ValueError: the text is shorter than that.
    """
    ids = tokenizer.encode(TEXT_PATH.read_text())
    if len(ids) < num_windows * WINDOW:
        raise ValueError(
            f"{TEXT_PATH.name} has {len(ids)} tokens, {num_windows} windows need "
            f"{num_windows * WINDOW}"
        )
    pieces = [ids[first : first + WINDOW] for first in range(0, num_windows * WINDOW, WINDOW)]
    if ids[0] == tokenizer.bos_token_id:
        pieces = [[ids[0], *piece[1:]] for piece in pieces]
    return pieces


#: the first token of a window that is scored: those before it have too little context
FIRST_SCORED = WINDOW // 2 + 1
