"""The op set: the contract between model definitions and backends.

A model file says what the network is, once, by calling these operations. Tensors and weights are
opaque handles: T tokens, R requests and L logit rows are symbols, and a model never reads a size
and never branches on data. Backends: `octavo/ops/native.py` (records a plan for the CPU library)
and `octavo/ops/torch.py` (eager PyTorch on any device; on CPU the oracle of every native kernel).

Runs in: workers. Knows nothing of: requests, schedulers, checkpoints' names.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType

__all__ = [
    "BLOCK_SHAPE",
    "Activation",
    "GGMLType",
    "KVLayer",
    "Ops",
    "StoredTensor",
    "Tensor",
    "Weight",
]


class StoredTensor(msgspec.Struct, frozen=True):
    """A tensor as it lies in a checkpoint, with the one convention models see declared beside it.

    `data` is the raw bytes (a view of a mapped file). `shape` is row-major, [rows, cols] for linear
    weights. Row i of what the model sees is row `row_permutation[i]` of the file (None: as stored);
    `value_offset` is added to each value (Gemma's GGUF norms hold weight + 1, so they carry -1).
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    data: memoryview
    row_permutation: npt.NDArray[np.int32] | None = None
    value_offset: float = 0.0


class Activation(IntEnum):
    """Point-wise functions of feed-forward layers."""

    SILU = 0
    GELU = 1  # erf
    GELU_TANH = 2
    RELU = 3


class Tensor(Protocol):
    """Handle of an activation: [rows, cols], rows being T, R or L."""


class Weight(Protocol):
    """Handle of a packed weight."""


class KVLayer(msgspec.Struct, frozen=True):
    """Which layer's cache an attention op uses; sizes as in `messages/kv_cache.py`."""

    layer: int
    num_kv_heads: int
    k_head_dim: int
    v_head_dim: int
    sliding_window: int | None = None


class Ops(Protocol):
    """One backend. Shapes are [rows, cols]; f32 unless said otherwise; `rows` follows the input."""

    # ---- weights
    def pack_linear(self, tensor: StoredTensor) -> Weight:
        """[n, k] weight of `linear`, `embed` or `lm_head`, stored as the backend's dtype says."""
        ...

    def pack_vector(self, tensor: StoredTensor) -> Weight:
        """[n] norm weight, bias or sinks, kept as f32."""
        ...

    def constant(self, values: npt.NDArray[np.float32]) -> Weight:
        """[n] f32 computed by the model (inverse frequencies)."""
        ...

    # ---- network
    def embed(self, weight: Weight, *, scale: float = 1.0) -> Tensor:
        """[T, k]: row `input_ids[t]` of `weight`, times `scale`, which a bf16 weight rounds to bf16
        (as transformers does: such models were trained so)."""
        ...

    def linear(self, x: Tensor, weight: Weight, bias: Weight | None = None) -> Tensor:
        """[rows, n] = x @ weight.T (+ bias)."""
        ...

    def rms_norm(
        self, x: Tensor, weight: Weight, *, eps: float, offset: float = 0.0, num_heads: int = 1
    ) -> Tensor:
        """x * rsqrt(mean(x^2) + eps) * (weight + offset); with `num_heads` > 1 over each head's
        slice by itself."""
        ...

    def layer_norm(
        self, x: Tensor, weight: Weight | None, bias: Weight | None, *, eps: float
    ) -> Tensor:
        """(x - mean) * rsqrt(var + eps) * weight + bias; population variance."""
        ...

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        ...

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """x * y."""
        ...

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """x * factor."""
        ...

    def split(self, x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """Views of consecutive columns."""
        ...

    def rope(
        self,
        x: Tensor,
        inv_freq: Weight,
        *,
        num_heads: int,
        head_dim: int,
        rotary_dim: int,
        scaling: float = 1.0,
    ) -> Tensor:
        """Half-split rotary embedding at `positions`: for pairs (i, i + rotary_dim/2) of each head.
        cos and sin are f32 of the f32 product position * inv_freq, times `scaling`. Source:
        RoFormer; pair convention of HF Llama."""
        ...

    def kv_write(self, k: Tensor, v: Tensor, layer: KVLayer) -> None:
        """Stores K [T, kv_heads*k_dim] and V [T, kv_heads*v_dim] at `slot_mapping` of the layer's
        group."""
        ...

    def attention(
        self,
        q: Tensor,
        layer: KVLayer,
        *,
        num_heads: int,
        scale: float,
        soft_cap: float = 0.0,
        sinks: Weight | None = None,
    ) -> Tensor:
        """[T, num_heads*v_dim]: causal attention over the paged cache, batches mixing prefill and
        decode. Query head h reads KV head h // (num_heads / num_kv_heads). With a window w token p
        sees (p - w, p]."""
        ...

    def act(self, x: Tensor, kind: Activation) -> Tensor:
        """kind(x)."""
        ...

    def act_mul(self, gate: Tensor, up: Tensor, kind: Activation) -> Tensor:
        """kind(gate) * up."""
        ...

    def soft_cap(self, x: Tensor, cap: float) -> Tensor:
        """cap * tanh(x / cap)."""
        ...

    # ---- logits
    # -------------
    def select_rows(self, x: Tensor) -> Tensor:
        """[S, cols]: the rows `logit_rows` of x [T, cols], still as the tokens they are. What
        follows works on these alone."""
        ...

    def logit_rows(self, x: Tensor) -> Tensor:
        """[L, cols]: x [S, cols] as the head reads it. Ends the forward segment."""
        ...

    def lm_head(self, x: Tensor, weight: Weight) -> Tensor:
        """[L, vocab] logits; computed in row chunks together with what follows. Begins the sample
        segment."""
        ...

    # ---- sampling (recorded by octavo/sample, in its order)
    def logprobs(self, logits: Tensor, *, processed: bool, as_logits: bool = False) -> None:
        """Reports log-softmax of rows that asked: chosen or target id and the most likely ones, or
        the ids they asked for. `processed`: of the distribution that `sample` draws from, else of
        the logits as they are here. `as_logits`: the logits themselves (processed: over
        temperature)."""
        ...

    def penalize(self, logits: Tensor) -> Tensor:
        """Adds biases and bans, then repetition, frequency and presence penalties of seen ids."""
        ...

    def mask(self, logits: Tensor) -> Tensor:
        """-inf where a row's bit mask is 0."""
        ...

    def logits_hook(self, logits: Tensor) -> Tensor:
        """What the step's `SamplingArrays.logits_hook` makes of the rows; as they are if it has
        none."""
        ...

    def sample(self, logits: Tensor) -> None:
        """Greedy, or temperature -> min-p -> top-k -> top-p -> one draw with Philox(seed, output
        index)."""
        ...
