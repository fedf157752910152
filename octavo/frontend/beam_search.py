"""Beam search over an engine that samples: which prefixes to continue, and which outputs won.

Knows how to choose, not how to generate: each round gives the beams' tokens (`prompts`), takes the
candidates of one more token for each of them (`advance`), and at the end gives the best outputs.
Callers run one request of one token and `2 * beam_width` logprobs per beam and round; the prefix
cache makes that cheap.

The rules are vLLM's: every beam offers its `2 * beam_width` most likely tokens; one that ends a
sequence completes an output, of the others the `beam_width` best in all go on; no early end.

Neighbours: `octavo/llm.py`, `octavo/frontend/beam_search_stream.py` (callers).
Runs in: API process, or the user's process offline. Owns: the beams of one prompt.
Knows nothing of: engines, queues, HTTP.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.errors import InvalidParameter
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.prompt import Prompt, TokensPrompt
from octavo.outputs import CompletionOutput, PositionLogprobs, RequestOutput
from octavo.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizer.tokenizer import Tokenizer


@dataclass(slots=True)
class _Beam:
    """One output in the making."""

    token_ids: list[int]  # generated
    logprobs: list[PositionLogprobs]  # one per token
    cumulative_logprob: float = 0.0
    finish_reason: str = "length"
    stop_reason: int | None = None
    length: int = field(default=0)  # tokens that count for the score, the prompt's included


class BeamSearch:
    """The search of one prompt.

    Args:
        prompt_token_ids: what the beams continue.
        params: width, length and scoring.
        max_tokens: most tokens of an output: those of `params`, or fewer where the window ends.
        eos_token_ids: complete an output, unless `params.ignore_eos`.
    """

    def __init__(
        self,
        prompt_token_ids: Sequence[int],
        params: BeamSearchParams,
        *,
        max_tokens: int,
        eos_token_ids: Collection[int],
    ) -> None:
        self.prompt_token_ids = list(prompt_token_ids)
        self._params = params
        self._max_tokens = max_tokens
        self._eos_token_ids = frozenset(() if params.ignore_eos else eos_token_ids)
        self._beams = [_Beam([], [])]
        self._completed: list[_Beam] = []
        self._num_rounds = 0

    @property
    def is_done(self) -> bool:
        """True when no beam goes on."""
        return not self._beams or self._num_rounds >= self._max_tokens

    def prompts(self) -> list[TokensPrompt]:
        """What to generate one token for: one prompt per beam."""
        return [TokensPrompt(self.prompt_token_ids + beam.token_ids) for beam in self._beams]

    def advance(self, candidates: Sequence[PositionLogprobs]) -> None:
        """Takes the candidates of the next token of each beam, in the order of `prompts`."""
        width = self._params.beam_width
        going_on: list[tuple[float, int, _Beam, PositionLogprobs]] = []
        for beam, position in zip(self._beams, candidates, strict=True):
            for token_id, candidate in position.items():
                if candidate.rank is not None and candidate.rank > 2 * width:
                    continue  # the sampled token, which is no candidate by itself
                total = beam.cumulative_logprob + candidate.logprob
                if token_id in self._eos_token_ids:
                    self._complete(beam, token_id, total, position)
                else:
                    going_on.append((total, token_id, beam, position))
        best = heapq.nlargest(width, going_on, key=_total)  # equal ones in the order given
        self._num_rounds += 1
        self._beams = [
            _Beam(
                [*beam.token_ids, token_id],
                [*beam.logprobs, position],
                total,
                length=len(self.prompt_token_ids) + len(beam.token_ids) + 1,
            )
            for total, token_id, beam, position in best
        ]

    def best(self, tokenizer: Tokenizer | None) -> list[CompletionOutput]:
        """The outputs, best first; at most `beam_width`. Without a tokenizer they have no text."""
        ranked = sorted([*self._completed, *self._beams], key=self._score, reverse=True)
        outputs = []
        for index, beam in enumerate(ranked[: self._params.beam_width]):
            shown = beam.token_ids
            if beam.stop_reason is not None and self._params.include_stop_str_in_output:
                shown = shown[:-1]  # the ending token is part of the ids, not of the text
            outputs.append(
                CompletionOutput(
                    index,
                    "" if tokenizer is None else self._text(tokenizer, shown),
                    beam.token_ids,
                    beam.cumulative_logprob,
                    beam.logprobs,
                    beam.finish_reason,
                    beam.stop_reason,
                )
            )
        return outputs

    def _complete(self, beam: _Beam, eos: int, total: float, position: PositionLogprobs) -> None:
        keeps_eos = self._params.include_stop_str_in_output
        self._completed.append(
            _Beam(
                [*beam.token_ids, eos] if keeps_eos else beam.token_ids,
                [*beam.logprobs, position] if keeps_eos else beam.logprobs,
                total,
                "stop",
                eos,
                length=len(self.prompt_token_ids) + len(beam.token_ids),
            )
        )

    def _text(self, tokenizer: Tokenizer, token_ids: list[int]) -> str:
        stream = tokenizer.decode_stream(self.prompt_token_ids, self._params.skip_special_tokens)
        return "".join(map(stream.step, token_ids))

    def _score(self, beam: _Beam) -> float:
        length: float = max(beam.length, 1) ** self._params.length_penalty
        return beam.cumulative_logprob / length


def begin_search(
    inputs: InputProcessor, prompt: Prompt, params: BeamSearchParams, request_id: str
) -> BeamSearch:
    """The search of a prompt that has been checked as any request is.

    Raises:
        InvalidParameter, PromptTooLong: it cannot be served.
    """
    one = step_params(params)
    one.max_tokens = params.max_tokens
    try:
        request = inputs.process(prompt, one, request_id)
    except InvalidParameter as error:
        if error.param != "logprobs":
            raise
        raise InvalidParameter(
            f"A beam search of width {params.beam_width} needs {2 * params.beam_width} logprobs "
            "per token, more than --max-logprobs allows; ask for fewer beams (n). (parameter=n, "
            f"value={params.beam_width})",
            param="n",
        ) from None
    max_tokens = request.sampling_params.max_tokens
    assert max_tokens is not None
    return BeamSearch(
        request.prompt_token_ids,
        params,
        max_tokens=max_tokens,
        eos_token_ids=request.eos_token_ids,
    )


def step_params(params: BeamSearchParams) -> SamplingParams:
    """What each beam's request of a round asks for."""
    return SamplingParams(
        max_tokens=1,
        temperature=params.temperature,
        logprobs=2 * params.beam_width,
        detokenize=False,
        ignore_eos=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def candidates_of(output: RequestOutput) -> PositionLogprobs:
    """The candidates that one beam's request came back with."""
    logprobs = output.outputs[0].logprobs
    assert logprobs, "a request of a beam search reports logprobs"
    return logprobs[0]


def _total(candidate: tuple[float, int, _Beam, PositionLogprobs]) -> float:
    return candidate[0]
