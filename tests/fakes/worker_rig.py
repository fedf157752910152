"""A real worker over weights in memory, driven as a scheduler would: any chunks, any company.

Knows nothing of: the scheduler, queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from octavo.config.engine import DeviceConfig, ModelConfig, SchedulerConfig
from octavo.core.kv_cache_plan import group_layers
from octavo.messages.engine import TokenLogprobs
from octavo.messages.kv_cache import KVCacheConfig
from octavo.messages.step import (
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
)
from octavo.ops.backend import Backend
from octavo.ops.interface import StoredTensor
from octavo.ops.library import load_library
from octavo.ops.native import NativeBackend
from octavo.ops.plan import PlanOptions
from octavo.sampling_params import SamplingParams
from octavo.worker.worker import Worker
from tests.fakes.memory_checkpoint import MemoryCheckpoint

GREEDY = SamplingParams(temperature=0.0)


@dataclass
class Generated:
    """What one request has got so far."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    failure: str | None = None


@dataclass
class _Request:
    prompt: list[int]
    params: SamplingParams
    blocks: list[list[int]]  # of its own, per KV group
    shared_blocks: list[list[int]]  # of another request: a cache hit
    num_computed: int = 0
    is_known: bool = False
    got: Generated = field(default_factory=Generated)

    @property
    def table(self) -> list[list[int]]:
        pairs = zip(self.shared_blocks, self.blocks, strict=True)
        return [shared + own[len(shared) :] for shared, own in pairs]

    @property
    def num_left(self) -> int:
        left = len(self.prompt) - self.num_computed
        return left if left > 0 else left + len(self.got.token_ids)


class WorkerRig:
    """A loaded worker with its cache; requests live in blocks of their own.

    Args:
        hf_config, tensors: the model.
        dtype: as `--dtype`.
        make_backend: opens the device; by default the native library's best level.
        cache_dtype: as `--kv-cache-dtype`; `make_backend` knows its own.
    """

    def __init__(
        self,
        hf_config: Mapping[str, object],
        tensors: Mapping[str, StoredTensor],
        *,
        architecture: str = "LlamaForCausalLM",
        dtype: str = "float32",
        make_backend: Callable[[str], Backend] | None = None,
        cache_dtype: str = "auto",
        max_model_len: int = 256,
        max_tokens: int = 128,
        max_requests: int = 8,
        block_size: int = 16,
        seed: int = 0,
        depth: int = 1,
        logprobs_mode: str = "raw_logprobs",
    ) -> None:
        self.checkpoint = MemoryCheckpoint(tensors)
        self._open = make_backend or partial(native_backend, cache_dtype=cache_dtype)
        self._block_size = block_size
        self._blocks_per_request = -(-max_model_len // block_size)
        vocab_size = hf_config["vocab_size"]
        assert isinstance(vocab_size, int)
        model = ModelConfig(
            model="memory",
            served_model_names=["memory"],
            weights_path="memory",
            weights_format="dummy",
            tokenizer_path="memory",
            architecture=architecture,
            hf_config=dict(hf_config),
            dtype=dtype,
            vocab_size=vocab_size,
            max_model_len=max_model_len,
            max_model_len_is_given=True,
            seed=seed,
            logprobs_mode=logprobs_mode,
        )
        self.worker = Worker(
            model,
            SchedulerConfig(
                max_num_batched_tokens=max_tokens, max_num_seqs=max_requests, depth=depth
            ),
            DeviceConfig(),
            open_backend=lambda device, dtype, cache_dtype, prompt_dtype: self._open(dtype),
            open_checkpoint=lambda path: self.checkpoint,
            available_memory_bytes=lambda: 2**30,
        )
        self.worker.load_model()
        layer_to_spec = {spec.layer: spec for spec in self.worker.kv_cache_specs()}
        groups = group_layers(list(layer_to_spec.values()))
        per_request, num_tables = self._blocks_per_request, max_requests * len(groups)
        self.worker.initialize_kv_cache(
            KVCacheConfig(
                num_blocks=1 + num_tables * per_request,
                block_size=block_size,
                bytes_per_block=block_size
                * max(
                    sum(layer_to_spec[layer].bytes_per_token() for layer in group.layers)
                    for group in groups
                ),
                groups=groups,
            )
        )
        tables = [
            list(range(1 + n * per_request, 1 + (n + 1) * per_request)) for n in range(num_tables)
        ]
        self._free_blocks = [tables[n : n + len(groups)] for n in range(0, num_tables, len(groups))]
        self._requests: dict[str, _Request] = {}
        self._finished: list[str] = []

    def add(
        self,
        name: str,
        prompt: list[int],
        params: SamplingParams = GREEDY,
        *,
        prefix_of: str | None = None,
        num_shared_blocks: int = 0,
    ) -> None:
        """Makes a request known to the rig; nothing is computed yet.

        Its first `num_shared_blocks` blocks are those of `prefix_of`, which has computed them.
        """
        blocks = self._free_blocks.pop()
        request = _Request(prompt, params, blocks, [[] for _ in blocks])
        if prefix_of is not None:
            table = self._requests[prefix_of].table
            request.shared_blocks = [ids[:num_shared_blocks] for ids in table]
            request.num_computed = num_shared_blocks * self._block_size
        self._requests[name] = request

    def preempt(self, name: str, num_kept_blocks: int = 0) -> None:
        """The worker forgets a request; all but its first blocks is computed again."""
        request = self._requests[name]
        if request.is_known:
            self._finished.append(name)
        request.is_known = False
        request.num_computed = num_kept_blocks * self._block_size

    def num_computed(self, name: str) -> int:
        """Tokens of a request that are in the cache."""
        return self._requests[name].num_computed

    def num_left(self, name: str) -> int:
        """Tokens of a request that are not computed yet, at most those that one step may take: the
        rest of its prompt, or what comes after it."""
        return self._requests[name].num_left

    def generated(self, name: str) -> Generated:
        """What a request has got so far."""
        return self._requests[name].got

    def step(self, name_to_count: Mapping[str, int]) -> ModelRunnerOutput:
        """One step that computes this many tokens of each request, in this order."""
        scheduled = SchedulerOutput(
            [], {}, dict(name_to_count), sum(name_to_count.values()), self._finished
        )
        self._finished = []
        for name in name_to_count:
            request = self._requests[name]
            if not request.is_known:
                scheduled.new_requests.append(self._new(name, request))
        output = self.worker.execute_model(scheduled)
        for name, count in name_to_count.items():
            self._note(name, count, output)
        return output

    def generate(self, name: str, num_tokens: int, chunk: int = 10**9) -> Generated:
        """Runs one request alone, its prompt in chunks."""
        request = self._requests[name]
        while len(request.got.token_ids) < num_tokens and request.got.failure is None:
            self.step({name: min(request.num_left, chunk)})
        return request.got

    def finish(self, name: str) -> None:
        """Forgets a request."""
        self._free_blocks.append(self._requests.pop(name).blocks)
        self._finished.append(name)

    def close(self) -> None:
        """Frees the worker."""
        self.worker.shutdown()

    def _new(self, name: str, request: _Request) -> NewRequestData:
        request.is_known = True
        return NewRequestData(
            name,
            request.prompt + request.got.token_ids,
            len(request.prompt),
            request.params,
            request.table,
            request.num_computed,
        )

    def _note(self, name: str, count: int, output: ModelRunnerOutput) -> None:
        request = self._requests[name]
        request.num_computed += count
        request.got.token_ids += output.sampled_token_ids[name]
        request.got.logprobs += (output.logprobs or {}).get(name, [])
        request.got.prompt_logprobs += (output.prompt_logprobs or {}).get(name, [])
        request.got.failure = (output.failed or {}).get(name)


def native_backend(
    dtype: str,
    *,
    isa: str | None = None,
    num_threads: int = 2,
    cache_dtype: str = "auto",
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
) -> NativeBackend:
    """The native library; no spinning, since tests share the machine."""
    return NativeBackend(
        load_library(isa),
        num_threads=num_threads,
        spin_us=0,
        dtype=dtype,
        cache_dtype=cache_dtype,
        options=options,
    )
