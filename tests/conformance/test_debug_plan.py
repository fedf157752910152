"""The debug mode: an unfused plan without shared memory, compared value by value with PyTorch.

Every tensor that the model makes on its way, in order, so that the first wrong op is named.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from octavo.models.registry import model_class
from octavo.ops.backend import Network
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.native import NativeTensor
from octavo.ops.plan import PlanOptions
from octavo.ops.torch import TorchOps
from octavo.weights.loader import WeightStore
from tests.conformance.test_native_ops import kv_pool, step_of
from tests.fakes.memory_checkpoint import MemoryCheckpoint
from tests.fakes.tiny_models import TINY_MODELS, tiny_model_tensors
from tests.fakes.worker_rig import native_backend


class TracedOps:
    """Passes every call on and keeps what it returns; `names[i]` made `values[i]`."""

    def __init__(self, ops: Any) -> None:
        self._ops = ops
        self.names: list[str] = []
        self.values: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        op = getattr(self._ops, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            value = op(*args, **kwargs)
            if not name.startswith("pack") and name not in ("constant", "kv_write"):
                self.names.append(name)
                self.values.append(value)
            return value

        return call


def with_modest_scores(tensors: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """With a quarter of what queries and keys are made of: random 4-bit weights give scores of 183,
    of which one unit in the last place is more than the bound below."""
    scaled = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith("input_layernorm.weight"):
            values = np.frombuffer(tensor.data, np.float32) / 4
            scaled[name] = msgspec.structs.replace(tensor, data=memoryview(values.tobytes()))
    return scaled


@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.Q4_1])
@pytest.mark.parametrize("architecture", TINY_MODELS)
def test_every_value_on_the_way_equals_pytorchs(architecture: str, kind: GGMLType) -> None:
    debug = PlanOptions(is_fused=False, is_arena_shared=False)
    backend = native_backend("float32", options=debug)
    tensors = with_modest_scores(tiny_model_tensors(architecture, kind))
    native, expected = TracedOps(backend.ops), TracedOps(TorchOps("cpu", "float32", "float32"))
    models = [
        model_class(architecture)(
            TINY_MODELS[architecture], WeightStore(MemoryCheckpoint(tensors), ops), ops
        )
        for ops in (native, expected)
    ]
    network = Network(models[0].forward, lambda hidden: None, 96, models[0].kv_layers)
    plan = backend.compile(network, max_tokens=96, max_requests=6)
    pool = kv_pool(tuple(models[0].kv_layers), "float32")
    plan.allocate_kv(pool)
    expected.allocate_kv(pool)
    step = step_of([(0, 33), (0, 5)])
    step.input_ids[:38] = np.random.default_rng(0).integers(0, 96, 38)
    step.logit_rows[:2], step.num_logits = [32, 37], 2
    assert plan.forward(step)
    expected.begin_step(step)
    models[1].forward()
    expected_names = [name for name in expected.names if name not in ("allocate_kv", "begin_step")]
    expected_values = [v for v in expected.values if isinstance(v, torch.Tensor)]
    assert native.names == expected_names
    maximum = 0.0
    for name, handle, values in zip(native.names, native.values, expected_values, strict=True):
        assert isinstance(handle, NativeTensor)
        made = plan.read(handle.buffer, len(values))[:, handle.col : handle.col + handle.cols]
        difference = float(np.abs(made - values.numpy()).max() / values.abs().max())
        assert difference <= 1e-5, name
        maximum = max(maximum, difference)
    print(f"{len(native.names)} values, largest relative difference {maximum:.2e} (bound 1e-05)")
    plan.close()
    backend.close()
