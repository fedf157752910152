"""`Worker`: one device from bare to serving: load weights, allocate the cache, warm up, run steps.

Runs in: EngineCore (uniproc) or a worker process. Owns: backend, model, cache, runner.
Knows nothing of: queues, sockets, text.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from octavo.config.engine import DeviceConfig, ModelConfig, SchedulerConfig
from octavo.errors import ConfigError, StartupError
from octavo.messages.kv_cache import KVCacheConfig, KVCacheSpec, MemoryReport
from octavo.messages.profile import Profile
from octavo.messages.step import ModelRunnerOutput, NewRequestData, PendingMasks, SchedulerOutput
from octavo.models.base import CausalLM, Weights
from octavo.models.registry import model_class
from octavo.ops.backend import Backend, CompiledNetwork, Network
from octavo.ops.interface import Tensor
from octavo.platforms.cpu import available_memory_bytes
from octavo.sample.logits_processor import load_logits_processors
from octavo.sample.recorder import record_sampling
from octavo.sample.sampling_rows import SamplingRows
from octavo.sampling_params import SamplingParams
from octavo.weights.checkpoint import Checkpoint, open_checkpoint
from octavo.weights.loader import WeightStore
from octavo.worker.device import open_backend
from octavo.worker.input_batch import InputBatch
from octavo.worker.kv_cache import kv_cache_specs, place_layers
from octavo.worker.load_progress import load_progress
from octavo.worker.model_runner import ModelRunner, PreparedStep
from octavo.worker.request_states import RequestStates

#: Tokens of the warm-up step. From here on a step's time grows linearly with its tokens, so the
#: time of the largest step is extrapolated and start-up does not wait for one.
WARM_UP_TOKENS = 64
_WARM_UP_ID = "warm-up"


class Worker:
    """One device.

    Args:
        model: which weights, which architecture, how they are computed with.
        scheduler: the largest step.
        device: which device, how many threads.
        cache_dtype: element type of the cache, as `--kv-cache-dtype`.
        open_backend: opens the device with a dtype, a cache dtype and a prompt dtype.
        open_checkpoint: opens the weights at a path.
        available_memory_bytes: memory this process may still take.
        shows_progress: a progress bar on a terminal while weights load.
    """

    def __init__(
        self,
        model: ModelConfig,
        scheduler: SchedulerConfig,
        device: DeviceConfig,
        *,
        cache_dtype: str = "auto",
        open_backend: Callable[[DeviceConfig, str, str, str], Backend] = open_backend,
        open_checkpoint: Callable[[str], Checkpoint] = open_checkpoint,
        available_memory_bytes: Callable[[], int] = available_memory_bytes,
        shows_progress: bool = True,
    ) -> None:
        self._model_config = model
        self._scheduler = scheduler
        self._device = device
        self._cache_dtype = cache_dtype
        self._open_backend = open_backend
        self._open_checkpoint = open_checkpoint
        self._available_memory_bytes = available_memory_bytes
        self._shows_progress = shows_progress
        self._backend: Backend | None = None
        self._model: CausalLM | None = None
        self._network: CompiledNetwork | None = None
        self._runner: ModelRunner | None = None
        self._kv_config: KVCacheConfig | None = None
        self._processors = [make(model) for make in load_logits_processors(model.logits_processors)]

    def load_model(self) -> None:
        """Opens the device, packs the weights and compiles the network.

        Raises:
            ConfigError: the architecture or its configuration is not supported, or the device
                cannot compute as it was asked to.
            StartupError: the checkpoint does not fit its configuration.
        """
        config, scheduler = self._model_config, self._scheduler
        build = model_class(config.architecture)
        backend = self._open_backend(
            self._device, config.dtype, self._cache_dtype, config.prompt_dtype
        )
        self._backend = backend
        checkpoint = self._open_checkpoint(config.weights_path)
        try:
            store = WeightStore(checkpoint, backend.ops)
            with self._progress(store, len(list(checkpoint.tensor_names))) as weights:
                model = build(config.hf_config, weights, backend.ops)
        except ConfigError as error:
            if config.weights_path in error.message:
                raise
            # models know their configuration, not where it came from
            raise ConfigError(f"{config.weights_path}: {error.message}") from error
        finally:
            checkpoint.close()
        self._model = model

        def sample(hidden: Tensor) -> None:
            logits = model.logits(hidden)
            record_sampling(
                backend.ops,
                logits,
                logprobs_mode=config.logprobs_mode,
                has_processors=bool(config.logits_processors),
            )

        network = Network(model.forward, sample, model.vocab_size, model.kv_layers)
        self._network = backend.compile(
            network,
            max_tokens=scheduler.max_num_batched_tokens,
            max_requests=scheduler.max_num_seqs,
        )

    def _progress(self, store: WeightStore, num_tensors: int) -> AbstractContextManager[Weights]:
        return load_progress(store, num_tensors) if self._shows_progress else nullcontext(store)

    @property
    def network(self) -> CompiledNetwork:
        """The compiled network, for profiles."""
        assert self._network is not None
        return self._network

    def start_profile(self) -> None:
        """Clocks every operation of the steps to come."""
        self.network.start_profile()

    def stop_profile(self) -> Profile:
        """What they took."""
        return self.network.stop_profile()

    def memory_report(self) -> MemoryReport:
        """Memory after `load_model`. The arena is allocated later, so it counts as available."""
        assert self._backend is not None
        assert self._network is not None
        return MemoryReport(
            available_bytes=self._available_memory_bytes(),
            weight_bytes=self._backend.weight_bytes,
            activation_bytes=self._network.activation_bytes,
        )

    def kv_cache_specs(self) -> list[KVCacheSpec]:
        """The cache that each layer needs."""
        assert self._backend is not None
        assert self._model is not None
        return kv_cache_specs(
            self._model.kv_layers,
            self._backend.kv_dtype,
            tells_prompts_apart=self._backend.tells_prompts_apart,
        )

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """Allocates the cache and everything that depends on its shape.

        Raises:
            StartupError: the memory cannot be had.
        """
        assert self._backend is not None
        assert self._model is not None
        assert self._network is not None
        scheduler = self._scheduler
        self._network.allocate_kv(
            place_layers(config, self._model.kv_layers, self._backend.kv_dtype)
        )
        self._kv_config = config
        try:
            self._runner = self._make_runner(config)
        except MemoryError as error:
            raise StartupError(
                f"There is no memory for the tables of {scheduler.max_num_seqs} requests of up to "
                f"{config.max_model_len} tokens ({error}); lower --max-model-len or --max-num-seqs."
            ) from None

    def _make_runner(self, config: KVCacheConfig) -> ModelRunner:
        assert self._model is not None
        assert self._network is not None
        scheduler = self._scheduler
        sampling = SamplingRows(
            max_requests=scheduler.max_num_seqs,
            vocab_size=self._model.vocab_size,
            engine_seed=self._model_config.seed,
            processors=self._processors,
        )
        states = RequestStates(
            sampling,
            max_requests=scheduler.max_num_seqs,
            max_model_len=config.max_model_len or self._model_config.max_model_len,
            num_groups=len(config.groups),
            block_size=config.block_size,
        )
        batches = [
            InputBatch(
                states,
                max_tokens=scheduler.max_num_batched_tokens,
                max_requests=scheduler.max_num_seqs,
                block_size=config.block_size,
            )
            for _ in range(scheduler.depth)
        ]
        return ModelRunner(
            self._network, states, batches, max_logits=scheduler.max_num_batched_tokens
        )

    def warm_up(self) -> float:
        """Runs one prefill step; returns the seconds a step of the most tokens would take.

        It writes to the first blocks of the pool, which no request owns yet.
        """
        kv = self._kv_config
        assert kv is not None
        max_tokens = self._scheduler.max_num_batched_tokens
        num_tokens = min(
            WARM_UP_TOKENS,
            max_tokens,
            self._model_config.max_model_len,
            kv.num_blocks * kv.block_size,
        )
        num_blocks = -(-num_tokens // kv.block_size)
        new = NewRequestData(
            request_id=_WARM_UP_ID,
            token_ids=[0] * num_tokens,
            num_prompt_tokens=num_tokens,
            sampling_params=SamplingParams(temperature=0.0),
            block_ids=[list(range(num_blocks)) for _ in kv.groups],
            num_computed_tokens=0,
        )
        scheduled = SchedulerOutput([new], {}, {_WARM_UP_ID: num_tokens}, num_tokens, [])
        start = time.perf_counter()
        self.execute_model(scheduled)
        elapsed_s = time.perf_counter() - start
        self.execute_model(SchedulerOutput([], {}, {}, 0, [_WARM_UP_ID]))
        return elapsed_s * max_tokens / num_tokens

    def prepare(self, scheduled: SchedulerOutput) -> PreparedStep:
        """Fills the arrays of a step, while others may be computing: see `ModelRunner`."""
        assert self._runner is not None
        return self._runner.prepare(scheduled)

    def run(
        self, prepared: PreparedStep, grammar_masks: PendingMasks | None = None
    ) -> ModelRunnerOutput:
        """Computes a prepared step, in the order of preparation.

        Args:
            grammar_masks: awaited before sampling.

        Raises:
            StepAborted: `abort` was called.
        """
        assert self._runner is not None
        return self._runner.run(prepared, grammar_masks)

    def execute_model(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        """Prepares and computes one step.

        Raises:
            StepAborted: `abort` was called.
        """
        return self.run(self.prepare(scheduled))

    def idle(self) -> None:
        """No step is on its way, and none is known to come: gets ready for later ones, at no
        cost to the next."""
        assert self._runner is not None
        self._runner.idle()

    def notes(self) -> list[str]:
        """Sentences for the log: what was decided about the model on this device."""
        assert self._backend is not None
        return list(self._backend.notes)

    def abort(self) -> None:
        """Makes the running step, and every later one, end early. Any thread."""
        if self._network is not None:
            self._network.abort()

    def shutdown(self) -> None:
        """Frees the device."""
        if self._network is not None:
            self._network.close()
        if self._backend is not None:
            self._backend.close()
        self._runner, self._network, self._model, self._backend = None, None, None, None
