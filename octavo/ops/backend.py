"""What a worker needs of a backend beside the op set: compile a network, run its two segments.

A network is described once by calling `Ops` (models and `octavo/sample/recorder.py` do). The native
backend records these calls into a plan when `compile` is called; the PyTorch backend calls them in
every step. The runner sees no difference.

Runs in: workers. Knows nothing of: requests, schedulers, checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from octavo.messages.profile import Profile
from octavo.ops.interface import KVLayer, Ops, Tensor
from octavo.ops.step import SampleOutputArrays, SamplingArrays, StepArrays


def cache_element_type(cache_dtype: str, dtype: str) -> str:
    """Element type of the cache: a key of `messages.kv_cache.DTYPE_BYTES`.

    Args:
        cache_dtype: as `--kv-cache-dtype`; "auto" follows the arithmetic.
        dtype: as `--dtype`.
    """
    if cache_dtype == "auto":
        return "float32" if dtype == "float32" else "bfloat16"
    return "fp8_e4m3" if cache_dtype == "fp8" else cache_dtype


class Network(msgspec.Struct, frozen=True):
    """The two segments as functions that call ops.

    Attributes:
        forward: from `embed` to the final hidden state of the logit rows, [L, hidden].
        sample: from that state (`lm_head`) to `sample`.
        vocab_size: columns of the logits.
        kv_layers: every layer that owns a cache.
    """

    forward: Callable[[], Tensor]
    sample: Callable[[Tensor], None]
    vocab_size: int
    kv_layers: Sequence[KVLayer]


class KVPlacement(msgspec.Struct, frozen=True):
    """Where one layer's cache lies inside a block."""

    layer: KVLayer
    group: int
    offset_bytes: int


class KVPool(msgspec.Struct, frozen=True):
    """The pool of equal blocks and the place of each layer in a block."""

    num_blocks: int
    block_size: int  # tokens
    bytes_per_block: int
    placements: Sequence[KVPlacement]


class CompiledNetwork(Protocol):
    """A network that can run steps."""

    @property
    def activation_bytes(self) -> int:
        """Memory of activations at the largest step."""
        ...

    def allocate_kv(self, pool: KVPool) -> None:
        """Allocates the cache. Called once, before the first step.

        Raises:
            StartupError: the memory cannot be had.
        """
        ...

    def prefault_kv(self, num_blocks: int) -> None:
        """While no step comes, makes memory ready for the blocks that will be used next; returns
        at once. The cache is allocated.

        Args:
            num_blocks: those before this number have been used.
        """
        ...

    def forward(self, step: StepArrays) -> bool:
        """Runs the forward segment; False: it was aborted and the step has no result."""
        ...

    def sample(
        self, step: StepArrays, sampling: SamplingArrays, output: SampleOutputArrays
    ) -> bool:
        """Runs the sample segment into `output`; False: aborted."""
        ...

    def start_profile(self) -> None:
        """Clocks every operation from now on.

        Raises:
            EngineError: this backend has no clocks.
        """
        ...

    def stop_profile(self) -> Profile:
        """What the operations took since `start_profile`, and the limits of the machine.

        Raises:
            EngineError: no profile is being taken.
        """
        ...

    def abort(self) -> None:
        """Makes the running step, and every later one, return early. Any thread."""
        ...

    def close(self) -> None:
        """Frees the cache and everything else the network owns."""
        ...


class Backend(Protocol):
    """A device that can hold weights and compile networks."""

    @property
    def ops(self) -> Ops:
        """The op set of this backend."""
        ...

    @property
    def kv_dtype(self) -> str:
        """Element type of the cache: a key of `messages.kv_cache.DTYPE_BYTES`."""
        ...

    @property
    def tells_prompts_apart(self) -> bool:
        """True if prompt tokens and generated ones are computed in different ways, known once the
        weights are packed (`StepArrays.num_generated`)."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights packed so far."""
        ...

    @property
    def notes(self) -> list[str]:
        """Sentences about what was decided while packing, for the log."""
        ...

    def compile(self, network: Network, *, max_tokens: int, max_requests: int) -> CompiledNetwork:
        """Makes `network` runnable for steps of at most these sizes."""
        ...

    def close(self) -> None:
        """Frees weights and threads."""
        ...
