"""LlamaForCausalLM: the network of Llama, SmolLM2, Mistral 7B's relatives and many others.

Pre-norm decoder, grouped-query attention with rotary embeddings, gated feed-forward.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from octavo.models.base import ConfigReader, Weights
from octavo.models.layers import GatedMLP, Linear, RMSNorm, RotaryEmbedding
from octavo.models.rope import Rope, rope_from_config
from octavo.ops.interface import Activation, KVLayer, Ops, Tensor


class LlamaConfig(msgspec.Struct, frozen=True):
    """The keys of `config.json` that shape the network."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    activation: Activation
    rope: Rope
    has_attention_bias: bool
    has_mlp_bias: bool
    is_tied: bool

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, object]) -> LlamaConfig:
        """Checks and reads `hf_config`.

        Raises:
            ConfigError: a key is missing or has a value this network cannot have.
        """
        read = ConfigReader(hf_config, "LlamaForCausalLM")
        hidden_size = read.integer("hidden_size")
        num_heads = read.integer("num_attention_heads")
        num_kv_heads = read.integer("num_key_value_heads", num_heads)
        if num_heads % num_kv_heads:
            raise read.error(
                "num_key_value_heads", num_kv_heads, f"a divisor of num_attention_heads={num_heads}"
            )
        if not read.has("head_dim") and hidden_size % num_heads:
            raise read.error("hidden_size", hidden_size, f"a multiple of {num_heads} heads")
        head_dim = read.head_dim(hidden_size // num_heads)
        return cls(
            vocab_size=read.integer("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=read.integer("intermediate_size"),
            num_layers=read.integer("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            rms_norm_eps=read.number("rms_norm_eps", 1e-6),
            activation=read.activation("hidden_act", "silu"),
            rope=rope_from_config(
                hf_config,
                head_dim=head_dim,
                max_position_embeddings=read.integer("max_position_embeddings", 2048),
            ),
            has_attention_bias=read.boolean("attention_bias", False),
            has_mlp_bias=read.boolean("mlp_bias", False),
            is_tied=read.boolean("tie_word_embeddings", False),
        )


class LlamaAttention:
    """Self-attention of one layer."""

    def __init__(
        self, config: LlamaConfig, weights: Weights, ops: Ops, rope: RotaryEmbedding, layer: int
    ) -> None:
        prefix = f"model.layers.{layer}.self_attn"
        hidden_size, has_bias = config.hidden_size, config.has_attention_bias
        q_size = config.num_heads * config.head_dim
        kv_size = config.num_kv_heads * config.head_dim
        self.ops, self.config, self.rope = ops, config, rope
        self.q = Linear(weights, ops, f"{prefix}.q_proj", q_size, hidden_size, has_bias)
        self.k = Linear(weights, ops, f"{prefix}.k_proj", kv_size, hidden_size, has_bias)
        self.v = Linear(weights, ops, f"{prefix}.v_proj", kv_size, hidden_size, has_bias)
        self.o = Linear(weights, ops, f"{prefix}.o_proj", hidden_size, q_size, has_bias)
        self.kv_layer = KVLayer(layer, config.num_kv_heads, config.head_dim, config.head_dim)

    def __call__(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        q = self.rope(q, self.config.num_heads)
        k = self.rope(k, self.config.num_kv_heads)
        self.ops.kv_write(k, v, self.kv_layer)
        attended = self.ops.attention(
            q, self.kv_layer, num_heads=self.config.num_heads, scale=self.config.head_dim**-0.5
        )
        return self.o(attended)


class LlamaDecoderLayer:
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(
        self, config: LlamaConfig, weights: Weights, ops: Ops, rope: RotaryEmbedding, layer: int
    ) -> None:
        prefix, size, eps = f"model.layers.{layer}", config.hidden_size, config.rms_norm_eps
        self.ops = ops
        self.input_norm = RMSNorm(weights, ops, f"{prefix}.input_layernorm", size, eps)
        self.attention = LlamaAttention(config, weights, ops, rope, layer)
        self.mlp_norm = RMSNorm(weights, ops, f"{prefix}.post_attention_layernorm", size, eps)
        self.mlp = GatedMLP(
            weights,
            ops,
            f"{prefix}.mlp",
            size,
            config.intermediate_size,
            config.activation,
            config.has_mlp_bias,
        )

    def __call__(self, x: Tensor) -> Tensor:
        x = self.ops.add(x, self.attention(self.input_norm(x)))
        return self.ops.add(x, self.mlp(self.mlp_norm(x)))


class LlamaForCausalLM:
    """The whole network."""

    def __init__(self, hf_config: Mapping[str, object], weights: Weights, ops: Ops) -> None:
        config = LlamaConfig.from_hf(hf_config)
        rope = RotaryEmbedding(ops, config.rope, config.head_dim)
        vocab_size, hidden_size = config.vocab_size, config.hidden_size
        self.ops, self.config, self.vocab_size = ops, config, vocab_size
        self.embedding = weights.linear("model.embed_tokens.weight", vocab_size, hidden_size)
        self.layers = [
            LlamaDecoderLayer(config, weights, ops, rope, layer)
            for layer in range(config.num_layers)
        ]
        self.norm = RMSNorm(weights, ops, "model.norm", hidden_size, config.rms_norm_eps)
        self.head = (
            self.embedding
            if config.is_tied
            else weights.linear("lm_head.weight", vocab_size, hidden_size)
        )
        self.kv_layers: Sequence[KVLayer] = [layer.attention.kv_layer for layer in self.layers]

    def forward(self) -> Tensor:
        """Final hidden state of the logit rows: [L, hidden_size]."""
        x = self.ops.embed(self.embedding)
        for layer in self.layers:
            x = layer(x)
        return self.norm(self.ops.gather_rows(x))

    def logits(self, hidden: Tensor) -> Tensor:
        """[L, vocab_size]."""
        return self.ops.lm_head(hidden, self.head)
