"""The op set in eager PyTorch: the CUDA path, and on CPU the oracle of every native kernel.

Ops run when they are called, so a compiled network is the two functions themselves. Activations are
f32; a linear computes in its weight's dtype. The cache is one tensor pair per layer.

Runs in: workers on CUDA, tests. Owns: device tensors of weights and cache.
Knows nothing of: requests, schedulers, checkpoints' names.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from octavo.errors import EngineError
from octavo.messages.profile import Profile
from octavo.ops.backend import KVPool, Network, cache_element_type
from octavo.ops.dequantize import dequantize
from octavo.ops.interface import Activation, KVLayer, StoredTensor, Weight
from octavo.ops.interface import Tensor as TensorHandle
from octavo.ops.logits_hook import GuardedHook
from octavo.ops.philox import uniform
from octavo.ops.step import SampleOutputArrays, SamplingArrays, StepArrays
from octavo.ops.torch_cache import DTYPES, TorchCache


class _LayerCache(msgspec.Struct):
    group: int
    k: TorchCache
    v: TorchCache


class TorchOps:
    """`Ops` on one PyTorch device. Handles are `torch.Tensor`s.

    Args:
        device: a PyTorch device name.
        dtype: "float32" or "bfloat16": weights and linear layers.
        kv_dtype: a key of `messages.kv_cache.DTYPE_BYTES`.
    """

    def __init__(self, device: str, dtype: str, kv_dtype: str) -> None:
        self.device = torch.device(device)
        self.dtype = DTYPES[dtype]
        self.kv_dtype = kv_dtype
        self.weight_bytes = 0
        self._block_size = 0
        self._caches: dict[int, _LayerCache] = {}
        self._step: StepArrays
        self._sampling: SamplingArrays
        self._output: SampleOutputArrays
        self._input_ids: Tensor  # [T]
        self._positions: Tensor  # [T]
        self._raw_report: dict[int, Tensor] = {}  # logit row -> [V]
        self._reports_logits = False
        self._hook: GuardedHook | None = None

    # ---- weights
    def pack_linear(self, tensor: StoredTensor) -> Weight:
        return self._keep(torch.from_numpy(dequantize(tensor)).to(self.device, self.dtype))

    def pack_vector(self, tensor: StoredTensor) -> Weight:
        return self._keep(torch.from_numpy(dequantize(tensor)).to(self.device))

    def constant(self, values: npt.NDArray[np.float32]) -> Weight:
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(self.device)

    def _keep(self, weight: Tensor) -> Tensor:
        self.weight_bytes += weight.numel() * weight.element_size()
        return weight

    # ---- cache and step
    def allocate_kv(self, pool: KVPool) -> None:
        """Makes the cache of every layer of `pool`."""
        self._block_size = pool.block_size
        slots = pool.num_blocks * pool.block_size
        for place in pool.placements:
            layer, heads = place.layer, place.layer.num_kv_heads
            self._caches[layer.layer] = _LayerCache(
                place.group,
                TorchCache((slots, heads, layer.k_head_dim), self.kv_dtype, self.device),
                TorchCache((slots, heads, layer.v_head_dim), self.kv_dtype, self.device),
            )

    def begin_step(self, step: StepArrays) -> None:
        """Gives the ops that follow the arrays of one step."""
        self._step = step
        rows = step.input_rows[: step.num_tokens]
        ids = np.where(rows >= 0, step.last_tokens[rows], step.input_ids[: step.num_tokens])
        self._input_ids = self._to_device(ids)
        self._positions = self._to_device(step.positions[: step.num_tokens])

    def begin_sample(self, sampling: SamplingArrays, output: SampleOutputArrays) -> None:
        """Gives the sampling ops that follow their arrays."""
        self._sampling, self._output = sampling, output
        self._raw_report = {}
        hook = sampling.logits_hook
        self._hook = None if hook is None else GuardedHook(hook, output)

    def end_sample(self) -> None:
        """To be called after the last sampling op."""
        if self._hook is not None:
            self._hook.finish()

    def free(self) -> None:
        """Drops the cache."""
        self._caches.clear()

    def _to_device(self, values: npt.NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self.device)

    # ---- network
    def embed(self, weight: Weight, *, scale: float = 1.0) -> TensorHandle:
        rows = functional.embedding(self._input_ids, _tensor(weight))
        return rows.float() * torch.tensor(scale, dtype=rows.dtype).float()

    def linear(self, x: TensorHandle, weight: Weight, bias: Weight | None = None) -> TensorHandle:
        matrix = _tensor(weight)
        y = functional.linear(_tensor(x).to(matrix.dtype), matrix).float()
        return y if bias is None else y + _tensor(bias)

    def rms_norm(
        self,
        x: TensorHandle,
        weight: Weight,
        *,
        eps: float,
        offset: float = 0.0,
        num_heads: int = 1,
    ) -> TensorHandle:
        heads = _tensor(x).unflatten(-1, (num_heads, -1))
        normed = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + eps)
        return (normed * (_tensor(weight) + offset)).flatten(-2)

    def layer_norm(
        self, x: TensorHandle, weight: Weight | None, bias: Weight | None, *, eps: float
    ) -> TensorHandle:
        values = _tensor(x)
        return functional.layer_norm(
            values,
            values.shape[-1:],
            None if weight is None else _tensor(weight),
            None if bias is None else _tensor(bias),
            eps,
        )

    def add(self, x: TensorHandle, y: TensorHandle) -> TensorHandle:
        return _tensor(x) + _tensor(y)

    def mul(self, x: TensorHandle, y: TensorHandle) -> TensorHandle:
        return _tensor(x) * _tensor(y)

    def scale(self, x: TensorHandle, factor: float) -> TensorHandle:
        return _tensor(x) * factor

    def split(self, x: TensorHandle, sizes: Sequence[int]) -> list[TensorHandle]:
        return list(torch.split(_tensor(x), list(sizes), dim=-1))

    def rope(
        self,
        x: TensorHandle,
        inv_freq: Weight,
        *,
        num_heads: int,
        head_dim: int,
        rotary_dim: int,
        scaling: float = 1.0,
    ) -> TensorHandle:
        heads = _tensor(x).unflatten(-1, (num_heads, head_dim))
        angles = self._positions.float()[:, None] * _tensor(inv_freq)  # [T, rotary_dim / 2]
        cos, sin = angles.cos()[:, None] * scaling, angles.sin()[:, None] * scaling
        first, second, rest = torch.split(
            heads, [rotary_dim // 2, rotary_dim // 2, head_dim - rotary_dim], dim=-1
        )
        rotated = (first * cos - second * sin, second * cos + first * sin, rest)
        return torch.cat(rotated, dim=-1).flatten(-2)

    def kv_write(self, k: TensorHandle, v: TensorHandle, layer: KVLayer) -> None:
        cache = self._caches[layer.layer]
        slots = self._to_device(self._step.slot_mapping[cache.group, : self._step.num_tokens])
        is_written = slots >= 0
        keys = _tensor(k).unflatten(-1, (layer.num_kv_heads, layer.k_head_dim))
        values = _tensor(v).unflatten(-1, (layer.num_kv_heads, layer.v_head_dim))
        cache.k.write(slots[is_written], keys[is_written])
        cache.v.write(slots[is_written], values[is_written])

    def attention(
        self,
        q: TensorHandle,
        layer: KVLayer,
        *,
        num_heads: int,
        scale: float,
        soft_cap: float = 0.0,
        sinks: Weight | None = None,
    ) -> TensorHandle:
        step, cache = self._step, self._caches[layer.layer]
        queries = _tensor(q).unflatten(-1, (layer.num_kv_heads, -1, layer.k_head_dim))
        sink = None if sinks is None else _tensor(sinks).view(layer.num_kv_heads, -1, 1, 1)
        rows = []
        for r in range(step.num_requests):
            first, last = int(step.query_start[r]), int(step.query_start[r + 1])
            keys, values = self._gather_kv(cache, r, int(step.seq_lens[r]))
            scores = torch.einsum("tghd,ngd->ghtn", queries[first:last], keys) * scale
            if soft_cap:
                scores = soft_cap * torch.tanh(scores / soft_cap)
            visible = self._visible(self._positions[first:last], len(keys), layer.sliding_window)
            scores = scores.masked_fill(~visible, -torch.inf)
            if sink is not None:
                scores = torch.cat((scores, sink.expand(-1, -1, last - first, 1)), dim=-1)
            probabilities = torch.softmax(scores, dim=-1)[..., : len(keys)]
            rows.append(torch.einsum("ghtn,ngd->tghd", probabilities, values).flatten(1))
        return torch.cat(rows)

    def _gather_kv(self, cache: _LayerCache, request: int, length: int) -> tuple[Tensor, Tensor]:
        """K and V of a request's first `length` tokens: [length, kv_heads, head_dim] f32."""
        num_blocks = -(-length // self._block_size)
        blocks = self._to_device(self._step.block_tables[cache.group, request, :num_blocks])
        offsets = torch.arange(self._block_size, device=self.device)
        slots = (blocks[:, None] * self._block_size + offsets).flatten()[:length]
        return cache.k.read(slots), cache.v.read(slots)

    def _visible(self, positions: Tensor, length: int, window: int | None) -> Tensor:
        """[T of the request, length] bool: which keys each query sees."""
        keys = torch.arange(length, device=self.device)
        visible = keys <= positions[:, None]
        return visible if window is None else visible & (keys > positions[:, None] - window)

    def act(self, x: TensorHandle, kind: Activation) -> TensorHandle:
        values = _tensor(x)
        if kind == Activation.SILU:
            return functional.silu(values)
        if kind == Activation.GELU:
            return functional.gelu(values)
        if kind == Activation.GELU_TANH:
            return functional.gelu(values, approximate="tanh")
        return functional.relu(values)

    def act_mul(self, gate: TensorHandle, up: TensorHandle, kind: Activation) -> TensorHandle:
        return _tensor(self.act(gate, kind)) * _tensor(up)

    def soft_cap(self, x: TensorHandle, cap: float) -> TensorHandle:
        return cap * torch.tanh(_tensor(x) / cap)

    # ---- logits
    def select_rows(self, x: TensorHandle) -> TensorHandle:
        return _tensor(x)[self._to_device(self._step.logit_rows[: self._step.num_logits])]

    def logit_rows(self, x: TensorHandle) -> TensorHandle:
        return x

    def lm_head(self, x: TensorHandle, weight: Weight) -> TensorHandle:
        return self.linear(x, weight)

    # ---- sampling
    def logprobs(self, logits: TensorHandle, *, processed: bool, as_logits: bool = False) -> None:
        self._reports_logits = as_logits
        # processed ones are those of the distribution that is drawn from: `sample` knows it
        if processed:
            return
        for row in range(self._step.num_logits):
            if self._sampling.num_logprobs[row] >= 0:
                raw = _tensor(logits)[row].float()
                self._raw_report[row] = raw.clone() if as_logits else torch.log_softmax(raw, dim=-1)

    def penalize(self, logits: TensorHandle) -> TensorHandle:
        sampling, values = self._sampling, _tensor(logits).clone()
        for row in range(self._step.num_logits):
            if sampling.uses_bias:
                part = slice(sampling.bias_offsets[row], sampling.bias_offsets[row + 1])
                bias = torch.from_numpy(sampling.bias_values[part]).to(self.device)
                ids = self._to_device(sampling.bias_ids[part])
                values[row].index_put_((ids,), bias, accumulate=True)
            if sampling.uses_penalties:
                part = slice(sampling.seen_offsets[row], sampling.seen_offsets[row + 1])
                ids = self._to_device(sampling.seen_ids[part])
                counts = self._to_device(sampling.seen_counts[part]).float()
                seen, repetition = values[row, ids], float(sampling.repetition_penalty[row])
                seen = torch.where(seen > 0, seen / repetition, seen * repetition)
                seen = seen - counts * float(sampling.frequency_penalty[row])
                values[row, ids] = seen - (counts > 0) * float(sampling.presence_penalty[row])
        return values

    def mask(self, logits: TensorHandle) -> TensorHandle:
        values = _tensor(logits)
        if not self._sampling.uses_masks:
            return values
        values = values.clone()
        for row in range(self._step.num_logits):
            mask_row = self._sampling.mask_row[row]
            if mask_row >= 0:
                bits = np.unpackbits(
                    self._sampling.masks[mask_row].view(np.uint8), bitorder="little"
                )
                allowed = torch.from_numpy(bits[: values.shape[1]].astype(bool)).to(self.device)
                values[row].masked_fill_(~allowed, -torch.inf)
        return values

    def logits_hook(self, logits: TensorHandle) -> TensorHandle:
        if self._hook is None:
            return logits
        rows = _tensor(logits).float().cpu().numpy().copy()
        self._hook(0, rows)
        return torch.from_numpy(rows).to(self.device)

    def sample(self, logits: TensorHandle) -> None:
        sampling, output, values = self._sampling, self._output, _tensor(logits).float()
        for row in range(self._step.num_logits):
            token = int(sampling.target[row])
            output.status[row], output.sampled[row] = self._status(values[row]), token
            if output.status[row] != output.OK:
                continue
            report = self._raw_report.get(row)
            if token < 0 or report is None:  # a prompt's token is known: nothing to draw
                distribution = self._distribution(values[row], row)
                if report is None:
                    report = self._processed_report(values[row], distribution, row)
            if token < 0:
                token = self._draw(distribution, row)
                output.sampled[row] = token
                if sampling.state_row[row] >= 0:
                    self._step.last_tokens[sampling.state_row[row]] = token
            if sampling.num_logprobs[row] >= 0:
                self._report(row, token, report)

    def _status(self, logits: Tensor) -> int:
        if bool((torch.isnan(logits) | (logits == torch.inf)).any()):
            return self._output.NAN
        is_empty = bool((logits == -torch.inf).all())
        return self._output.NOTHING_ALLOWED if is_empty else self._output.OK

    def _distribution(self, logits: Tensor, row: int) -> Tensor:
        """[V] f64 probabilities a row draws from; ids that were cut off have 0."""
        sampling = self._sampling
        if sampling.target[row] >= 0 or sampling.temperature[row] == 0:
            return torch.softmax(logits.double(), dim=-1)
        weights = torch.exp((logits - logits.max()) / float(sampling.temperature[row])).double()
        weights[weights < float(sampling.min_p[row])] = 0
        # by logit: different ones may have the same weight
        order = torch.sort(logits, descending=True, stable=True).indices
        ordered = weights[order]
        if sampling.top_k[row] > 0:
            ordered[int(sampling.top_k[row]) :] = 0
        if sampling.top_p[row] < 1:
            # the shortest prefix whose mass reaches top_p of what is left
            cumulative = ordered.cumsum(0)
            is_enough = cumulative >= float(sampling.top_p[row]) * float(ordered.sum())
            ordered[int(is_enough.nonzero()[0]) + 1 :] = 0
        kept = torch.zeros_like(ordered).index_put_((order,), ordered)
        return kept / kept.sum()

    def _draw(self, distribution: Tensor, row: int) -> int:
        """The most likely id, or the inverse of the cumulative mass over rising ids."""
        sampling = self._sampling
        if sampling.temperature[row] == 0:
            return int(torch.argmax(distribution))
        point = uniform(int(sampling.seed[row]), int(sampling.output_index[row]))
        passed = distribution.cumsum(0) > point
        if bool(passed.any()):
            return int(passed.nonzero()[0])
        return int(distribution.nonzero()[-1])  # rounding left the sum just below 1

    def _processed_report(self, logits: Tensor, distribution: Tensor, row: int) -> Tensor:
        """[V] log-probabilities that were drawn from, or the logits behind them; -inf: cut off."""
        if not self._reports_logits:
            return distribution.log()
        sampling = self._sampling
        is_drawn = sampling.target[row] < 0 and sampling.temperature[row] > 0
        scaled = logits / float(sampling.temperature[row]) if is_drawn else logits
        return torch.where(distribution > 0, scaled, -torch.inf)

    def _report(self, row: int, token: int, report: Tensor) -> None:
        """Fills the logprob columns of a row: the chosen id, then the asked or most likely ones."""
        output, sampling = self._output, self._sampling
        count = int(sampling.num_logprobs[row])
        output.logprob_ids[row, 0] = token
        output.logprob_values[row, 0] = float(report[token])
        output.logprob_ranks[row, 0] = int((report > report[token]).sum()) + 1
        asked = np.zeros(0, np.int32)
        if sampling.uses_report_ids and sampling.target[row] < 0:
            start, end = sampling.report_offsets[row : row + 2]
            asked = sampling.report_ids[start:end]
        if len(asked):
            for column, token_id in enumerate(asked.tolist(), 1):
                output.logprob_ids[row, column] = token_id
                output.logprob_values[row, column] = float(report[token_id])
                output.logprob_ranks[row, column] = int((report > report[token_id]).sum()) + 1
            return
        if count == 0:
            return
        # ties go to the lowest id: all that reach the last place are candidates, in order of id
        last_place = torch.topk(report, count).values[-1]
        candidates = (report >= last_place).nonzero()[:, 0]
        values, order = torch.sort(report[candidates], descending=True, stable=True)
        output.logprob_ids[row, 1 : count + 1] = candidates[order[:count]].cpu().numpy()
        output.logprob_values[row, 1 : count + 1] = values[:count].cpu().numpy()
        output.logprob_ranks[row, 1 : count + 1] = np.arange(1, count + 1)


def _tensor(handle: TensorHandle | Weight) -> Tensor:
    """The tensor behind a handle this backend made."""
    assert isinstance(handle, Tensor)
    return handle


class TorchNetwork:
    """The two segments, run eagerly."""

    def __init__(self, ops: TorchOps, network: Network) -> None:
        self._ops = ops
        self._network = network
        self._hidden: Tensor
        self._is_aborted = False

    @property
    def activation_bytes(self) -> int:
        """PyTorch's allocator owns the activations; on CUDA a profiled step measures them."""
        return 0

    def allocate_kv(self, pool: KVPool) -> None:
        self._ops.allocate_kv(pool)

    def prefault_kv(self, num_blocks: int) -> None:
        pass  # PyTorch has written to all of it

    def forward(self, step: StepArrays) -> bool:
        if self._is_aborted:
            return False
        with torch.inference_mode():
            self._ops.begin_step(step)
            self._hidden = _tensor(self._network.forward())
        return True

    def sample(
        self, step: StepArrays, sampling: SamplingArrays, output: SampleOutputArrays
    ) -> bool:
        if self._is_aborted:
            return False
        with torch.inference_mode():
            self._ops.begin_sample(sampling, output)
            self._network.sample(self._hidden)
            self._ops.end_sample()
        return True

    def start_profile(self) -> None:
        raise EngineError("the PyTorch backend has no clocks of its operations; use torch.profiler")

    def stop_profile(self) -> Profile:
        raise EngineError("no profile is being taken")

    def abort(self) -> None:
        self._is_aborted = True

    def close(self) -> None:
        self._ops.free()


class TorchBackend:
    """PyTorch on one device.

    Args:
        device: a PyTorch device name.
        dtype: "auto" (bfloat16), "float32" or "bfloat16".
        cache_dtype: as `--kv-cache-dtype`.
    """

    def __init__(self, device: str, dtype: str, cache_dtype: str = "auto") -> None:
        self.kv_dtype = cache_element_type(cache_dtype, dtype)
        self.ops = TorchOps(device, "float32" if dtype == "float32" else "bfloat16", self.kv_dtype)
        self.notes: list[str] = []
        self.tells_prompts_apart = False

    @property
    def weight_bytes(self) -> int:
        return self.ops.weight_bytes

    def compile(self, network: Network, *, max_tokens: int, max_requests: int) -> TorchNetwork:
        return TorchNetwork(self.ops, network)

    def close(self) -> None:
        self.ops.free()
