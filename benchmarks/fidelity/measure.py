"""What a model says of the text by one route: candidates at every scored place, greedy texts.

Knows nothing of: other routes, models' names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.fidelity.corpus import FIRST_SCORED, PROMPTS
from octavo import LLM, SamplingParams
from octavo.outputs import Logprob

NUM_CANDIDATES = 20  # the default of --max-logprobs
NUM_GREEDY_TOKENS = 64

READ = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=NUM_CANDIDATES)
GO_ON = SamplingParams(
    temperature=0.0, max_tokens=NUM_GREEDY_TOKENS, ignore_eos=True, logprobs=NUM_CANDIDATES
)


@dataclass(frozen=True)
class Candidates:
    """The most likely tokens of P places, most likely first.

    Attributes:
        ids: [P, NUM_CANDIDATES].
        logprobs: the same shape; natural logarithms, float64.
    """

    ids: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """One route's view of one model.

    Attributes:
        token_logprobs: [P] of the tokens that the text has.
        places: of the same P places.
        greedy: for each prompt the tokens of its continuation with their candidates.
        seconds: for reading and going on, without loading.
    """

    token_logprobs: npt.NDArray[np.float64]
    places: Candidates
    greedy: list[tuple[list[int], Candidates]]
    seconds: float


def measure(
    llm: LLM, windows: Sequence[list[int]], advance: Callable[[], object] = lambda: None
) -> Measurement:
    """Reads the windows and goes on from the prompts.

    Args:
        advance: called after each window and after the prompts.
    """
    start_s = time.perf_counter()
    token_logprobs: list[float] = []
    entries: list[Mapping[int, Logprob]] = []
    for window in windows:
        (output,) = llm.generate([window], READ, use_tqdm=False)
        assert output.prompt_logprobs is not None
        for token_id, entry in zip(
            window[FIRST_SCORED:], output.prompt_logprobs[FIRST_SCORED:], strict=True
        ):
            assert entry is not None
            token_logprobs.append(entry[token_id].logprob)
            entries.append(entry)
        advance()
    greedy = []
    for output in llm.generate(PROMPTS, GO_ON, use_tqdm=False):
        completion = output.outputs[0]
        assert completion.logprobs is not None
        greedy.append((completion.token_ids, _candidates(completion.logprobs)))
    advance()
    return Measurement(
        np.array(token_logprobs), _candidates(entries), greedy, time.perf_counter() - start_s
    )


def _candidates(entries: Sequence[Mapping[int, Logprob]]) -> Candidates:
    ids = np.zeros((len(entries), NUM_CANDIDATES), np.int64)
    logprobs = np.zeros((len(entries), NUM_CANDIDATES))
    for place, entry in enumerate(entries):
        # the text's own token comes along, whatever its rank
        ranked = sorted(entry.items(), key=lambda item: item[1].rank or 0)[:NUM_CANDIDATES]
        ids[place] = [token_id for token_id, _ in ranked]
        logprobs[place] = [one.logprob for _, one in ranked]
    return Candidates(ids, logprobs)
