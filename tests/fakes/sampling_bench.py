"""The whole way from sampling parameters and logits to tokens, on a real backend, and what should
come out, said in float64 with numpy.

The network is a table: the logits of the row whose token is t are `logits[t]`, to the bit.

Knows nothing of: models, workers, schedulers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from octavo.ops.backend import Backend, KVPool, Network
from octavo.ops.interface import Tensor
from octavo.ops.philox import uniform
from octavo.ops.step import SampleOutputArrays, SamplingArrays, StepArrays
from octavo.sample.logits_processor import LogitsProcessor
from octavo.sample.recorder import record_sampling
from octavo.sample.sampling_rows import SamplingRows
from octavo.sample.seed import request_seed
from octavo.sampling_params import SamplingParams
from tests.fakes.memory_checkpoint import float_tensor

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
ENGINE_SEED = 11


@dataclass
class Case:
    """One request in the middle of its life."""

    params: SamplingParams
    prompt: list[int] = field(default_factory=lambda: [1, 2])
    output: list[int] = field(default_factory=list)
    eos: list[int] = field(default_factory=lambda: [0])


class SamplingBench:
    """Samples one token for each of several requests. Use `sampling_bench`."""

    def __init__(
        self, backend: Backend, logits: F32, mode: str, processors: Sequence[LogitsProcessor]
    ) -> None:
        ops = backend.ops
        num_rows, vocab_size = logits.shape
        table = ops.pack_linear(float_tensor("table", logits))
        identity = ops.pack_linear(float_tensor("head", np.eye(vocab_size, dtype=np.float32)))

        def sample(hidden: Tensor) -> None:
            record_sampling(
                ops,
                ops.lm_head(hidden, identity),
                logprobs_mode=mode,
                has_processors=bool(processors),
            )

        network = Network(
            lambda: ops.logit_rows(ops.select_rows(ops.embed(table))), sample, vocab_size, []
        )
        self._num_rows, self._vocab_size = num_rows, vocab_size
        self._processors = processors
        self._backend = backend
        self._network = backend.compile(network, max_tokens=4096, max_requests=4096)
        self._network.allocate_kv(KVPool(1, 16, 64, []))

    def draw(
        self, cases: Sequence[Case], tokens: Sequence[int] | None = None
    ) -> SampleOutputArrays:
        """The next token of each case; the i-th has the logits of `tokens[i]` (i)."""
        count = len(cases)
        rows = SamplingRows(
            max_requests=count,
            vocab_size=self._vocab_size,
            engine_seed=ENGINE_SEED,
            processors=self._processors,
        )
        for row, case in enumerate(cases):
            rows.add(
                row,
                f"request-{row}",
                case.params,
                prompt_token_ids=case.prompt,
                output_token_ids=case.output,
                eos_token_ids=case.eos,
            )
        arrays = SamplingArrays(4096)
        most = rows.fill(
            arrays,
            np.arange(count, dtype=np.int32),
            output_index=np.array([len(case.output) for case in cases], np.int32),
            targets=None,
            grammar_rows=[],
        )
        step = StepArrays(max_tokens=4096, max_requests=4096, num_groups=1, max_blocks=1)
        step.num_tokens = step.num_logits = step.num_requests = count
        step.input_ids[:count] = np.arange(count) if tokens is None else tokens
        step.logit_rows[:count] = np.arange(count)
        step.query_start[: count + 1] = np.arange(count + 1)
        step.seq_lens[:count] = 1
        output = SampleOutputArrays(count)
        output.reserve_logprobs(count, most)
        assert self._network.forward(step)
        assert self._network.sample(step, arrays, output)
        return output

    def close(self) -> None:
        self._network.close()
        self._backend.close()


@contextmanager
def sampling_bench(
    make_backend: Callable[[], Backend],
    logits: F32,
    *,
    mode: str = "raw_logprobs",
    processors: Sequence[LogitsProcessor] = (),
) -> Iterator[SamplingBench]:
    """A bench that is closed at the end."""
    bench = SamplingBench(make_backend(), logits, mode, processors)
    try:
        yield bench
    finally:
        bench.close()


# ---- what should come out


def processed_logits(logits: F32, case: Case) -> F64:
    """After masks, biases, bans and penalties."""
    params, x = case.params, logits.astype(np.float64)
    if params.allowed_token_ids is not None:
        is_allowed = np.isin(np.arange(len(x)), params.allowed_token_ids)
        x[~is_allowed] = -np.inf
    for token_id, bias in (params.logit_bias or {}).items():
        x[token_id] += bias
    for word in params.bad_words_token_ids or ():
        prefix = word[:-1]
        if not prefix or case.output[-len(prefix) :] == prefix:
            x[word[-1]] = -np.inf
    if len(case.output) < params.min_tokens:
        ending = [] if params.ignore_eos else case.eos
        x[[*ending, *(params.stop_token_ids or ())]] = -np.inf
    for token_id in {*case.prompt, *case.output}:
        if params.repetition_penalty != 1:
            r = params.repetition_penalty
            x[token_id] = x[token_id] / r if x[token_id] > 0 else x[token_id] * r
        count = case.output.count(token_id)
        x[token_id] -= params.frequency_penalty * count + params.presence_penalty * (count > 0)
    return x


def drawn_from(x: F64, params: SamplingParams) -> F64:
    """[V] probabilities: temperature, min-p, top-k, top-p, in this order."""
    probabilities = np.zeros(len(x))
    if params.is_greedy:
        probabilities[int(x.argmax())] = 1
        return probabilities
    weights = np.exp((x - x.max()) / params.temperature)
    order = np.lexsort((np.arange(len(x)), -x))
    order = order[weights[order] >= params.min_p]
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        before = np.cumsum(weights[order]) - weights[order]
        order = order[before < params.top_p * weights[order].sum()]
    probabilities[order] = weights[order] / weights[order].sum()
    return probabilities


def assert_token(token: int, probabilities: F64, case: Case, row: int) -> None:
    """`token` is where the cumulative probability passes the draw, up to rounding."""
    assert probabilities[token] > 0
    seed = request_seed(case.params.seed, ENGINE_SEED, f"request-{row}")
    draw = uniform(seed, len(case.output))
    end = np.cumsum(probabilities)[token]
    assert end - probabilities[token] - 1e-5 <= draw <= end + 1e-5


def reported(logits: F32, x: F64, probabilities: F64, params: SamplingParams, mode: str) -> F64:
    """[V] what a mode reports of each token."""
    if mode == "raw_logits":
        return logits.astype(np.float64)
    if mode == "raw_logprobs":
        return log_softmax(logits.astype(np.float64))
    if mode == "processed_logits":
        scaled = x / (1 if params.is_greedy else params.temperature)
        return scaled if params.is_greedy else np.where(probabilities > 0, scaled, -np.inf)
    if params.is_greedy:
        return log_softmax(x)
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


def log_softmax(x: F64) -> F64:
    top = x.max()
    total: F64 = x - top - np.log(np.exp(x - top).sum())
    return total


# ---- properties that hold on every backend

MODES = ("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")
VOCAB = 64


def random_cases(rng: np.random.Generator, count: int) -> list[Case]:
    """Requests with any combination of parameters, each with its own past."""
    return [_random_case(rng) for _ in range(count)]


def _random_case(rng: np.random.Generator) -> Case:
    def maybe(value: object) -> object:
        return value if rng.random() < 0.4 else None

    def ids(count: int) -> list[int]:
        return [int(i) for i in rng.integers(0, VOCAB, count)]

    fields = {
        "temperature": rng.choice([0.0, 0.3, 1.0, 1.7]),
        "top_k": maybe(int(rng.integers(1, 20))),
        "top_p": maybe(float(rng.uniform(0.2, 0.99))),
        "min_p": maybe(float(rng.uniform(0.001, 0.3))),
        "repetition_penalty": maybe(float(rng.uniform(0.5, 2))),
        "presence_penalty": maybe(float(rng.uniform(-2, 2))),
        "frequency_penalty": maybe(float(rng.uniform(-2, 2))),
        "logit_bias": maybe({i: float(rng.uniform(-6, 6)) for i in ids(4)}),
        "bad_words_token_ids": maybe([ids(1), [3, 4], [4, 5, 6]]),
        "min_tokens": maybe(int(rng.integers(1, 4))),
        "stop_token_ids": maybe(ids(2)),
        "allowed_token_ids": maybe(sorted({*ids(30), 9, 10})),
        "seed": maybe(int(rng.integers(0, 2**62))),
        "logprobs": maybe(int(rng.integers(0, 6))),
        "ignore_eos": bool(rng.random() < 0.2),
    }
    params = SamplingParams(**{k: v for k, v in fields.items() if v is not None})  # type: ignore[arg-type]
    output = [i % 8 for i in ids(int(rng.integers(0, 9)))]  # some of them several times
    return Case(params, ids(4), output)


def check_the_whole_order(make_backend: Callable[[], Backend], seed: int, mode: str) -> None:
    """Tokens and what is reported of them are those of the plain reference."""
    rng = np.random.default_rng(seed)
    cases = random_cases(rng, 40)
    logits = rng.normal(0, 3, (40, VOCAB)).astype(np.float32)
    with sampling_bench(make_backend, logits, mode=mode) as bench:
        output = bench.draw(cases)
    for row, case in enumerate(cases):
        x = processed_logits(logits[row], case)
        probabilities = drawn_from(x, case.params)
        token = int(output.sampled[row])
        assert output.status[row] == SampleOutputArrays.OK
        if case.params.is_greedy:
            assert x[token] >= x.max() - 1e-5
        else:
            assert_token(token, probabilities, case, row)
        wanted = case.params.logprobs
        if wanted is None:
            continue
        values = reported(logits[row], x, probabilities, case.params, mode)
        ids = output.logprob_ids[row, : wanted + 1]
        assert ids[0] == token
        np.testing.assert_allclose(
            output.logprob_values[row, : wanted + 1], values[ids], atol=3e-5, rtol=1e-5
        )
        assert output.logprob_ranks[row, 0] == 1 + (values > values[token] + 1e-6).sum()
        best = np.sort(values)[::-1][:wanted]
        np.testing.assert_allclose(values[ids[1:]], best, atol=3e-5)


#: name -> parameters of the distribution tests
SHAPES: dict[str, dict[str, float]] = {
    "plain": {},
    "cold": {"temperature": 0.4},
    "hot": {"temperature": 1.8},
    "top-k": {"top_k": 7},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.08},
    "all": {"temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.02},
    "top-k and min-p": {"temperature": 0.8, "top_k": 12, "min_p": 0.05},
}
NUM_DRAWS = 4000


def check_frequencies(make_backend: Callable[[], Backend], shape: dict[str, float]) -> None:
    """4,000 draws of different seeds follow the distribution, and not one near it."""
    logits = np.random.default_rng(5).normal(0, 1.2, (1, VOCAB)).astype(np.float32)
    cases = [
        Case(SamplingParams(seed=1000 + n, **shape))  # type: ignore[arg-type]
        for n in range(NUM_DRAWS)
    ]
    with sampling_bench(make_backend, logits) as bench:
        output = bench.draw(cases, [0] * NUM_DRAWS)
    counts = np.bincount(output.sampled, minlength=VOCAB)
    exact = drawn_from(logits[0].astype(np.float64), cases[0].params)
    assert counts[exact == 0].sum() == 0
    assert _is_plausible(counts, exact)
    # the same counts do not fit a distribution of another temperature: the test can fail
    warmer = np.where(exact > 0, exact**0.7, 0)
    assert not _is_plausible(counts, warmer / warmer.sum())


def _is_plausible(counts: npt.NDArray[np.int64], probabilities: F64) -> bool:
    """Chi-square test at p = 1e-5, ids that are expected less than 5 times taken together.

    Source of the bound: Wilson and Hilferty, "The distribution of chi-square", 1931.
    """
    expected = probabilities * counts.sum()
    is_rare = (expected < 5) & (expected > 0)
    cells = [(counts[i], expected[i]) for i in np.flatnonzero(expected >= 5)]
    if is_rare.any():
        cells.append((counts[is_rare].sum(), expected[is_rare].sum()))
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    freedom = len(cells) - 1
    spread = 2 / (9 * freedom)
    bound: float = freedom * (1 - spread + 4.265 * spread**0.5) ** 3
    return bool(statistic < bound)


def check_seeds(make_backend: Callable[[], Backend]) -> None:
    """A row's token depends on its seed and how many came before, not on its company."""
    logits = np.zeros((24, VOCAB), np.float32)
    given = [Case(SamplingParams(seed=7), output=[1] * n) for n in range(8)]
    unseeded = [Case(SamplingParams(), output=[1] * 3) for _ in range(8)]
    with sampling_bench(make_backend, logits) as bench:
        together = bench.draw([*given, *unseeded]).sampled.tolist()
        again = bench.draw([*given, *unseeded]).sampled.tolist()
        alone = [int(bench.draw([case]).sampled[0]) for case in given]
    expected = [int(uniform(7, n) * VOCAB) for n in range(8)]
    assert together[:8] == alone == expected
    assert together == again  # those without a seed have one of the engine
    assert len(set(together[8:])) > 2  # and each its own
