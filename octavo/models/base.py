"""What every architecture shares: the model interface and reading `config.json` keys.

A model holds weights and describes the network by calling ops; see `octavo/ops/interface.py`. Its
configuration is a frozen dataclass made from the `hf_config` dict by `ConfigReader`, which turns a
missing or odd key into one sentence.

Runs in: workers. Knows nothing of: devices, requests, checkpoint formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np

from octavo.errors import ConfigError
from octavo.ops.interface import Activation, KVLayer, Ops, Tensor, Weight
from octavo.wording import shown

#: values of `layer_types`
SLIDING, FULL = "sliding_attention", "full_attention"
#: twice the largest of any published model: frequencies are made before weights are compared
MAX_HEAD_DIM = 1024
MAX_WINDOW = 2**31 - 1  # what a plan can hold


class Weights(Protocol):
    """A checkpoint's tensors packed for one backend (`octavo/weights/loader.py`: WeightStore)."""

    def linear(self, name: str, n: int, k: int) -> Weight:
        """The [n, k] weight `name`."""
        ...

    def vector(self, name: str, n: int) -> Weight:
        """The [n] vector `name`."""
        ...

    def optional_vector(self, name: str, n: int) -> Weight | None:
        """The [n] vector `name`, or None when the checkpoint has none."""
        ...

    def has(self, name: str) -> bool:
        """True when the checkpoint holds `name`."""
        ...


class CausalLM(Protocol):
    """A decoder that gives next-token logits."""

    vocab_size: int
    kv_layers: Sequence[KVLayer]

    def __init__(self, hf_config: Mapping[str, object], weights: Weights, ops: Ops) -> None: ...

    def forward(self) -> Tensor:
        """Final hidden state of the logit rows: [L, hidden_size]."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """[L, vocab_size]."""
        ...


class DecoderSizes(msgspec.Struct, frozen=True):
    """The sizes that `config.json` of every dense decoder names alike."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int


class ConfigReader:
    """Typed access to `hf_config` whose errors name the architecture and the key."""

    def __init__(self, hf_config: Mapping[str, object], architecture: str) -> None:
        self._config = hf_config
        self._architecture = architecture

    def has(self, key: str) -> bool:
        """True when the key is there and not null."""
        return self._config.get(key) is not None

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """A whole number of at least `minimum`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(key, value, f"a whole number of at least {minimum}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        """A finite number greater than `above`."""
        value = self._value(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not np.isfinite(value) or value <= above:  # type: ignore[call-overload,operator]
            raise self.error(key, value, f"a finite number above {above:g}")
        return float(value)  # type: ignore[arg-type]

    def sizes(self) -> DecoderSizes:
        """What every dense decoder has; heads that no other key sizes share the hidden size."""
        hidden_size = self.integer("hidden_size")
        num_heads = self.integer("num_attention_heads")
        num_kv_heads = self.integer("num_key_value_heads", num_heads)
        if num_heads % num_kv_heads:
            raise self.error(
                "num_key_value_heads", num_kv_heads, f"a divisor of num_attention_heads={num_heads}"
            )
        if not self.has("head_dim") and hidden_size % num_heads:
            raise self.error("hidden_size", hidden_size, f"a multiple of {num_heads} heads")
        return DecoderSizes(
            vocab_size=self.integer("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=self.integer("intermediate_size"),
            num_layers=self.integer("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=self.head_dim(hidden_size // num_heads),
            rms_norm_eps=self.number("rms_norm_eps", 1e-6),
            max_position_embeddings=self.integer("max_position_embeddings", 2048),
        )

    def windows(
        self, num_layers: int, sliding_window: int | None, default: Callable[[int], bool]
    ) -> list[int | None]:
        """Per layer the tokens it sees, None: all.

        Args:
            sliding_window: of the layers that `layer_types` calls `sliding_attention`.
            default: which layers those are when the configuration has no `layer_types`.
        """
        kinds = self._config.get("layer_types")
        if kinds is None:
            kinds = [SLIDING if default(layer) else FULL for layer in range(num_layers)]
        if not isinstance(kinds, list) or len(kinds) != num_layers:
            raise self.error("layer_types", kinds, f"a list of {num_layers} kinds")
        for kind in kinds:
            if kind not in (SLIDING, FULL):
                raise self.error("layer_types", kind, f"{SLIDING} and {FULL}")
        if sliding_window is None and SLIDING in kinds:
            raise self.error("sliding_window", None, f"a size, since layers are {SLIDING}")
        return [sliding_window if kind == SLIDING else None for kind in kinds]

    def sliding_window(self) -> int | None:
        """`sliding_window` in tokens, None when it is absent or null."""
        if not self.has("sliding_window"):
            return None
        window = self.integer("sliding_window")
        if window > MAX_WINDOW:
            raise self.error("sliding_window", window, f"at most {MAX_WINDOW}")
        return window

    def head_dim(self, default: int) -> int:
        """`head_dim`: rotary pairs make it even."""
        value = self.integer("head_dim", default)
        if value % 2 or value > MAX_HEAD_DIM:
            raise self.error("head_dim", value, f"an even number of at most {MAX_HEAD_DIM}")
        return value

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """true or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def activation(self, key: str, default: str | None = None) -> Activation:
        """The name of an activation function."""
        value = self._value(key, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self.error(key, value, f"one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def error(self, key: str, value: object, expected: str) -> ConfigError:
        """The error for a key whose value cannot be used."""
        return ConfigError(
            f"the model's configuration has {key}={shown(value)}, but {self._architecture} needs "
            f"{expected}; this checkpoint is not usable as it is."
        )

    def _value(self, key: str, default: object) -> object:
        value = self._config.get(key)
        if value is not None:
            return value
        if default is None:
            raise ConfigError(
                f"the model's configuration has no {key}, which {self._architecture} needs; "
                "check that the checkpoint is complete."
            )
        return default


#: config.json's `hidden_act` / `hidden_activation` -> op
ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
}
