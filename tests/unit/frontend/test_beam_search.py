"""Which beams go on and which outputs win."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidParameter, PromptTooLong
from octavo.frontend.beam_search import BeamSearch, begin_search, step_params
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.prompt import TextPrompt, TokensPrompt
from octavo.outputs import Logprob, PositionLogprobs
from octavo.sampling_params import BeamSearchParams
from tests.fakes.byte_tokenizer import BOS, ByteTokenizer
from tests.fakes.model_config import model_config

EOS = 0
TOKENIZER: Any = ByteTokenizer()


class Model:
    """Log-probabilities of the next token by the last one: a random table."""

    def __init__(self, vocab_size: int, seed: int) -> None:
        logits = np.random.default_rng(seed).normal(0, 2, (vocab_size, vocab_size))
        self.logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def candidates(self, prompt: TokensPrompt, count: int) -> PositionLogprobs:
        """As the engine reports them: the drawn token (here the worst), then the best ones."""
        row = self.logprobs[prompt.token_ids[-1]]
        order = np.argsort(-row, kind="stable").tolist()
        position = {order[-1]: Logprob(float(row[order[-1]]), len(order))}
        for rank, token_id in enumerate(order[:count], 1):
            position[token_id] = Logprob(float(row[token_id]), rank)
        return position


def found(model: Model, params: BeamSearchParams, prompt: list[int], **limits: Any) -> Any:
    limits = {"max_tokens": params.max_tokens, "eos_token_ids": [EOS], **limits}
    search = BeamSearch(prompt, params, **limits)
    while not search.is_done:
        search.advance([model.candidates(p, 2 * params.beam_width) for p in search.prompts()])
    return search.best(None)


def plain_search(
    model: Model, params: BeamSearchParams, prompt: list[int]
) -> list[tuple[list[int], float]]:
    """The same rules, said again without bookkeeping: (generated ids, sum of logprobs)."""
    width, completed = params.beam_width, []
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    for _ in range(params.max_tokens):
        offers = []
        for tokens, total in beams:
            row = model.logprobs[(prompt + tokens)[-1]]
            for token in np.argsort(-row, kind="stable")[: 2 * width].tolist():
                offer = (tokens, token, total + float(row[token]))
                (offers if token != EOS or params.ignore_eos else completed).append(offer)
        offers.sort(key=lambda offer: -offer[2])
        beams = [([*tokens, token], total) for tokens, token, total in offers[:width]]
    ended = [
        ([*tokens, token] if params.include_stop_str_in_output else tokens, total, len(tokens))
        for tokens, token, total in completed
    ]
    ended += [(tokens, total, len(tokens)) for tokens, total in beams]
    ended.sort(key=lambda e: -e[1] / (len(prompt) + e[2]) ** params.length_penalty)
    return [(tokens, total) for tokens, total, _ in ended[:width]]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    vocab_size=st.integers(3, 12),
    width=st.integers(1, 5),
    max_tokens=st.integers(1, 5),
    length_penalty=st.sampled_from([-1.0, 0.0, 0.7, 1.0, 2.0]),
    ignore_eos=st.booleans(),
    include_stop=st.booleans(),
)
def test_the_outputs_are_those_of_a_plain_search(
    seed: int,
    vocab_size: int,
    width: int,
    max_tokens: int,
    length_penalty: float,
    ignore_eos: bool,
    include_stop: bool,
) -> None:
    model = Model(vocab_size, seed)
    params = BeamSearchParams(
        beam_width=width,
        max_tokens=max_tokens,
        length_penalty=length_penalty,
        ignore_eos=ignore_eos,
        include_stop_str_in_output=include_stop,
    )
    outputs = found(model, params, [1, 2])
    expected = plain_search(model, params, [1, 2])
    assert [o.token_ids for o in outputs] == [tokens for tokens, _ in expected]
    assert [o.cumulative_logprob for o in outputs] == pytest.approx([t for _, t in expected])
    assert [o.index for o in outputs] == list(range(len(outputs)))
    assert all(len(o.logprobs) == len(o.token_ids) for o in outputs)


def test_a_wide_search_finds_the_likeliest_output_of_all() -> None:
    model = Model(4, 7)
    params = BeamSearchParams(beam_width=64, max_tokens=3, length_penalty=0.0, ignore_eos=True)
    best = found(model, params, [2])[0]
    row = model.logprobs
    totals = row[2][:, None, None] + row[:, :, None] + row[None, :, :]
    assert tuple(best.token_ids) == np.unravel_index(totals.argmax(), totals.shape)
    assert best.cumulative_logprob == pytest.approx(totals.max())


def test_an_output_that_ended_says_so_and_the_others_ran_out_of_tokens() -> None:
    outputs = found(Model(4, 5), BeamSearchParams(beam_width=4, max_tokens=2), [1])
    reasons = {(o.finish_reason, o.stop_reason) for o in outputs}
    assert reasons == {("stop", EOS), ("length", None)}


def test_the_window_may_end_a_search_early() -> None:
    params = BeamSearchParams(beam_width=2, max_tokens=9, ignore_eos=True)
    outputs = found(Model(5, 0), params, [1], max_tokens=3)
    assert [len(o.token_ids) for o in outputs] == [3, 3]


def test_text_continues_the_prompt_and_leaves_the_ending_token_out() -> None:
    eos = TOKENIZER.eos_token_id
    params = BeamSearchParams(beam_width=1, max_tokens=2, include_stop_str_in_output=True)
    search = BeamSearch([BOS, 0xE2, 0x82], params, max_tokens=2, eos_token_ids=[eos])
    # the prompt ends inside a character, which the first token completes
    search.advance([{0x82: Logprob(-9.0, 2), 0xAC: Logprob(-1.0, 1)}])
    first = search.prompts()[0].token_ids
    assert list(first) == [BOS, 0xE2, 0x82, 0xAC]
    search.advance([{eos: Logprob(-0.1, 1), 65: Logprob(-3.0, 2)}])
    best = search.best(TOKENIZER)[0]
    assert best.token_ids == [0xAC, eos]
    assert best.text == "\u20ac"


# ---- beginning


def begun(prompt: Any, max_logprobs: int = 20, **params: Any) -> BeamSearch:
    config = model_config(max_model_len=16, max_logprobs=max_logprobs)
    given_params = BeamSearchParams(**{"beam_width": 2, "max_tokens": 4, **params})
    return begin_search(InputProcessor(config, TOKENIZER), prompt, given_params, "a")


def test_prompts_are_checked_and_tokenised_as_any_other() -> None:
    assert begun(TextPrompt("hi")).prompt_token_ids == TOKENIZER.encode("hi")
    with pytest.raises(PromptTooLong):
        begun(TokensPrompt([1] * 16))
    with pytest.raises(InvalidParameter, match="vocabulary"):
        begun(TokensPrompt([10**6]))


def test_too_many_beams_are_refused_naming_the_flag() -> None:
    begun(TextPrompt("hi"), beam_width=10)
    with pytest.raises(InvalidParameter, match=r"needs 22 logprobs.*--max-logprobs") as caught:
        begun(TextPrompt("hi"), beam_width=11)
    assert caught.value.param == "n"


def test_a_beam_asks_for_one_token_and_its_alternatives() -> None:
    params = step_params(BeamSearchParams(beam_width=3, max_tokens=9))
    assert (params.max_tokens, params.logprobs, params.temperature) == (1, 6, 0.0)
