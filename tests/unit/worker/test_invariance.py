"""A request's bits are its own: whatever shares its steps, however its tokens are cut into steps,
cached, dropped and computed again, on any number of threads (docs/decisions/0003).

Each scenario is random from one number, which a failure names. `--long` runs many more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.messages.kv_cache import DTYPE_BYTES
from octavo.ops.ggml_type import GGMLType
from octavo.ops.library import available_isas
from octavo.sampling_params import SamplingParams
from tests.fakes.tiny_llama import tiny_llama_tensors
from tests.fakes.worker_rig import Generated, WorkerRig, native_backend

ISAS = available_isas()
KINDS = [
    GGMLType.F32,
    GGMLType.BF16,
    GGMLType.Q4_0,
    GGMLType.Q4_1,
    GGMLType.Q5_0,
    GGMLType.Q5_1,
    GGMLType.Q8_0,
    GGMLType.Q4_K,
    GGMLType.Q5_K,
    GGMLType.Q6_K,
]
K_QUANTS = {GGMLType.Q4_K, GGMLType.Q5_K, GGMLType.Q6_K}
BLOCK_SIZE = 16
MAX_MODEL_LEN = 640  # attention has three partitions of 256 tokens
NUM_GENERATED = 6
#: tokens of one request in one step: one row, few, a kernel's block and one more, many
CHUNKS = (1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 100, 250, 600)


@dataclass(frozen=True)
class Setting:
    """What is fixed while bits are compared."""

    isa: str
    kind: GGMLType
    cache_dtype: str
    window: int | None

    def rig(self, num_threads: int) -> WorkerRig:
        # sizes that fill no tile of columns, rows or lanes, as far as the kind allows
        is_k_quant, is_float = self.kind in K_QUANTS, self.kind in (GGMLType.F32, GGMLType.BF16)
        config: dict[str, object] = {
            "vocab_size": 93,
            "hidden_size": 256 if is_k_quant else 84 if is_float else 96,
            "intermediate_size": 256 if is_k_quant else 110 if is_float else 160,
            "num_hidden_layers": 1 if is_k_quant else 2,
            "num_attention_heads": 8 if is_k_quant else 6,
            "num_key_value_heads": 2,
            # enough work in one token's attention for its partitions to go to several threads
            "head_dim": 34 if is_float else 32,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": MAX_MODEL_LEN,
            "sliding_window": self.window,
        }
        backend = partial(
            native_backend, isa=self.isa, num_threads=num_threads, cache_dtype=self.cache_dtype
        )
        return WorkerRig(
            config,
            tiny_llama_tensors(config, self.kind),
            architecture="MistralForCausalLM",
            dtype="float32" if self.kind == GGMLType.F32 else "auto",
            make_backend=backend,
            max_model_len=MAX_MODEL_LEN,
            max_tokens=MAX_MODEL_LEN,
            max_requests=4,
            block_size=BLOCK_SIZE,
        )


@dataclass(frozen=True)
class Wanted:
    """A request of a scenario."""

    name: str
    prompt: list[int]
    params: SamplingParams
    prefix_of: str | None = None
    num_same: int = 0  # tokens at its beginning that are those of `prefix_of`


def wanted_requests(random: Random) -> list[Wanted]:
    """A long one, two short ones, and one that begins like the long one."""
    long = random.choices(range(93), k=random.randint(514, 600))
    prefix = long[: random.randint(BLOCK_SIZE, len(long))]
    prompts: list[tuple[str, list[int], str | None]] = [
        ("long", long, None),
        ("short", random.choices(range(93), k=random.randint(1, 40)), None),
        ("other", random.choices(range(93), k=random.randint(1, 130)), None),
        ("branch", [*prefix, *random.choices(range(93), k=random.randint(1, 20))], "long"),
    ]
    return [
        Wanted(
            name,
            prompt,
            SamplingParams(
                temperature=random.choice([0.0, 1.0]),
                top_p=random.choice([1.0, 0.9]),
                seed=random.randrange(2**31),
                logprobs=5,
                prompt_logprobs=None if prefix_of else 1,
            ),
            prefix_of,
            len(prefix) if prefix_of else 0,
        )
        for name, prompt, prefix_of in prompts
    ]


def run_alone(setting: Setting, wanted: list[Wanted]) -> dict[str, Generated]:
    """Each request by itself on one thread, its prompt in one step."""
    rig = setting.rig(1)
    try:
        results = {}
        for request in wanted:
            rig.add(request.name, request.prompt, request.params)
            results[request.name] = rig.generate(request.name, NUM_GENERATED)
        return results
    finally:
        rig.close()


class Company:
    """The same requests together: random chunks, cache hits and preemptions."""

    def __init__(self, rig: WorkerRig, wanted: list[Wanted], random: Random) -> None:
        self._rig, self._random = rig, random
        self._waiting, self._running = list(wanted), list[Wanted]()
        self.preempted: set[str] = set()
        self.hit: set[str] = set()

    def run(self) -> dict[str, Generated]:
        """Steps until every request has its tokens."""
        results: dict[str, Generated] = {}
        while self._waiting or self._running:
            while self._waiting and (not self._running or self._random.random() < 0.4):
                self._admit(self._waiting.pop(0))
            if self._random.random() < 0.2:
                self._preempt(self._random.choice(self._running))
            self._rig.step(self._counts())
            for request in list(self._running):
                got = self._rig.generated(request.name)
                if len(got.token_ids) >= NUM_GENERATED or got.failure:
                    results[request.name] = got
                    self._running.remove(request)
        return results

    def _admit(self, request: Wanted) -> None:
        num_hits = 0
        if request.prefix_of is not None:
            num_same = min(self._rig.num_computed(request.prefix_of), request.num_same)
            num_hits = self._random.randint(0, num_same // BLOCK_SIZE)
        if num_hits:
            self.hit.add(request.name)
        self._rig.add(
            request.name,
            request.prompt,
            request.params,
            prefix_of=request.prefix_of if num_hits else None,
            num_shared_blocks=num_hits,
        )
        self._running.append(request)

    def _preempt(self, request: Wanted) -> None:
        """Forgets a request but for some of its blocks, which its next step finds again."""
        num_full = self._rig.num_computed(request.name) // BLOCK_SIZE
        if num_full:
            self.preempted.add(request.name)
            self._rig.preempt(request.name, self._random.randint(0, num_full))

    def _counts(self) -> dict[str, int]:
        """Some of the running requests in any order, each with some of its tokens."""
        chosen = self._random.sample(self._running, self._random.randint(1, len(self._running)))
        counts: dict[str, int] = {}
        budget = MAX_MODEL_LEN
        for request in chosen:
            count = min(self._rig.num_left(request.name), self._random.choice(CHUNKS), budget)
            if count:
                counts[request.name] = count
                budget -= count
        return counts


def check(setting: Setting, seed: int) -> None:
    """One scenario: everything that was reported is equal to the last bit."""
    random = Random(f"{setting} {seed}")  # another scenario for each setting
    wanted = wanted_requests(random)
    alone = run_alone(setting, wanted)
    rig = setting.rig(num_threads=random.randint(1, 4))
    try:
        company = Company(rig, wanted, random)
        together = company.run()
    finally:
        rig.close()
    for request in wanted:
        expected, got = alone[request.name], together[request.name]
        assert expected.failure is None
        assert got.failure is None
        assert got.token_ids == expected.token_ids, request.name
        assert got.logprobs == expected.logprobs, request.name
        if request.name not in company.preempted | company.hit:
            assert got.prompt_logprobs == expected.prompt_logprobs, request.name


def check_scenarios(setting: Setting, num_scenarios: int) -> None:
    @settings(
        max_examples=num_scenarios,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**32 - 1))
    def scenarios(seed: int) -> None:
        check(setting, seed)

    scenarios()


@pytest.fixture
def num_scenarios(request: pytest.FixtureRequest) -> int:
    return 40 if request.config.getoption("--long") else 2


def window_of(index: int) -> int | None:
    """Full attention, a window within one partition, and one over several."""
    return (None, 40, 300)[index % 3]


@pytest.mark.parametrize("cache_dtype", DTYPE_BYTES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_bits_are_a_requests_own(kind: GGMLType, cache_dtype: str, num_scenarios: int) -> None:
    window = window_of(KINDS.index(kind) + list(DTYPE_BYTES).index(cache_dtype))
    check_scenarios(Setting(ISAS[0], kind, cache_dtype, window), num_scenarios)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("isa", ISAS[1:])
def test_bits_are_a_requests_own_on_every_level(
    isa: str, kind: GGMLType, num_scenarios: int
) -> None:
    # each level meets every cache, though not with every kind
    number = KINDS.index(kind) + ISAS.index(isa)
    cache_dtype = list(DTYPE_BYTES)[number % len(DTYPE_BYTES)]
    setting = Setting(isa, kind, cache_dtype, window_of(number))
    check_scenarios(setting, num_scenarios // 2)
