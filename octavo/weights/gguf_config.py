"""GGUF metadata -> the keys of Hugging Face's config.json.

Runs in: the API process and workers. Owns: the mapping. Knows nothing of: tensors' bytes (but for
rope factors, which some files keep in a small tensor).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from octavo.errors import ConfigError
from octavo.ops.ggml_type import GGMLType
from octavo.weights.gguf import GGUFArray, GGUFFile
from octavo.weights.tensor_info import TensorInfo
from octavo.weights.transforms import GGUF_ARCHITECTURES, GGUFArchitecture
from octavo.wording import shown

DEFAULT_ROPE_THETA: Final = 10000.0
MAX_SIZE: Final = 1 << 31
MAX_F32: Final = 3.4e38
#: tokens that end a turn or a text, in every vocabulary that has them
END_TOKENS: Final = (
    "<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>",
    "<end_of_utterance>",
)  # fmt: skip
GEMMA3_PATTERN: Final = 6  # one full layer after five sliding ones; older files do not say
GEMMA3_27B_LAYERS: Final = 62
#: the same in all of Llama 3.1, 3.2 and 3.3; the metadata does not hold them
LLAMA3_LOW_FREQ_FACTOR: Final = 1.0
LLAMA3_HIGH_FREQ_FACTOR: Final = 4.0
LLAMA3_ORIGINAL_WINDOW: Final = 8192


def gguf_architecture(gguf: GGUFFile) -> tuple[str, GGUFArchitecture]:
    """The file's `general.architecture` and its tables.

    Raises:
        ConfigError: an architecture that is not supported, or a file without weights.
    """
    name = gguf.text("general.architecture")
    if name is None:
        raise gguf.damaged("it lacks general.architecture")
    if gguf.text("general.type") not in (None, "model"):
        raise ConfigError(
            f"{gguf.path} holds something of type {shown(gguf.text('general.type'))}, not a "
            "model; name the model's file."
        )
    architecture = GGUF_ARCHITECTURES.get(name)
    if architecture is None:
        known = ", ".join(sorted(GGUF_ARCHITECTURES))
        raise ConfigError(
            f"{gguf.path} has the architecture {shown(name)}, which is not supported; supported "
            f"in GGUF files: {known}."
        )
    return name, architecture


def gguf_config(gguf: GGUFFile, tensors: dict[str, TensorInfo]) -> dict[str, Any]:
    """config.json as the converter saw it, as far as the metadata tells.

    Args:
        gguf: the file with the metadata.
        tensors: of all shards.

    Raises:
        ConfigError: the model has parts that are not supported.
        StartupError: a needed key is missing or has the wrong type.
    """
    return _ConfigReader(gguf, tensors).read()


def gguf_eos_token_ids(gguf: GGUFFile, vocab_size: int) -> list[int]:
    """Ids that end generation, without duplicates: what the file names as end of sequence, of turn
    and of message, and, since many files name only the first, tokens that mean nothing else.

    Ids outside the vocabulary stand for "none" in some files. Source of the rule: llama.cpp,
    llama-vocab.cpp.
    """
    tokens = gguf.array("tokenizer.ggml.tokens")
    found = tokens.indices_of(END_TOKENS) if tokens is not None else []
    return list(dict.fromkeys([*_named_end_ids(gguf, vocab_size), *found]))


def _named_end_ids(gguf: GGUFFile, vocab_size: int) -> list[int]:
    ids = [gguf.integer(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    return [i for i in ids if i is not None and 0 <= i < vocab_size]


class _ConfigReader:
    def __init__(self, gguf: GGUFFile, tensors: dict[str, TensorInfo]) -> None:
        self._gguf = gguf
        self._tensors = tensors
        self._prefix, self._architecture = gguf_architecture(gguf)

    def read(self) -> dict[str, Any]:
        gguf = self._gguf
        if self._integer("expert_count"):
            raise ConfigError(
                f"{gguf.path} is a mixture-of-experts model of architecture {self._prefix!r}, "
                "which is not supported; use a dense model."
            )
        num_heads = self._needed("attention.head_count")
        hidden_size = self._needed("embedding_length")
        head_dim = self._integer("attention.key_length") or hidden_size // num_heads
        if not 0 < head_dim < MAX_SIZE:
            raise gguf.damaged(f"its attention heads have the size {head_dim}")
        value_dim = self._integer("attention.value_length") or head_dim
        if value_dim != head_dim:
            raise ConfigError(
                f"{gguf.path} has key heads of {head_dim} and value heads of {value_dim}, which "
                f"is not supported for architecture {self._prefix!r}."
            )
        rotary_dim = self._integer("rope.dimension_count") or head_dim
        epsilon = self._number("attention.layer_norm_rms_epsilon")
        if epsilon is None:
            raise gguf.damaged(f"it lacks {self._prefix}.attention.layer_norm_rms_epsilon")
        vocab_size = self._vocab_size()
        end_ids = _named_end_ids(gguf, vocab_size)
        config: dict[str, Any] = {
            "architectures": [self._architecture.hf_architecture],
            "model_type": self._architecture.model_type,
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "intermediate_size": self._needed("feed_forward_length"),
            "num_hidden_layers": self._needed("block_count"),
            "num_attention_heads": num_heads,
            "num_key_value_heads": self._num_key_value_heads(num_heads),
            "head_dim": head_dim,
            "rms_norm_eps": _shortest_f32(epsilon),
            "rope_theta": _shortest_f32(self._rope_theta()),
            "rope_scaling": self._rope_scaling(head_dim),
            "max_position_embeddings": self._needed("context_length"),
            # the converter writes the output projection only when it is a matrix of its own
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "attention_bias": "blk.0.attn_q.bias" in self._tensors,
            "mlp_bias": "blk.0.ffn_up.bias" in self._tensors,
            "bos_token_id": gguf.integer("tokenizer.ggml.bos_token_id"),
            "eos_token_id": end_ids[0] if end_ids else None,
            **self._architecture.implied_config,
        }
        more_keys = _MORE_KEYS.get(self._prefix)
        if more_keys is not None:
            config |= more_keys(self, config)
        if rotary_dim != head_dim:
            config["partial_rotary_factor"] = rotary_dim / head_dim
        window = self._integer("attention.sliding_window")
        if window:
            config["sliding_window"] = window
        return config

    def llama_keys(self, config: dict[str, Any]) -> dict[str, Any]:
        """Files of Mistral's models say llama; a window tells them apart."""
        has_window = self._integer("attention.sliding_window")
        return {"architectures": ["MistralForCausalLM"]} if has_window else {}

    def gemma3_keys(self, config: dict[str, Any]) -> dict[str, Any]:
        """Two rotary bases, and which layers have a window. Source: llama.cpp, gemma3.cpp."""
        keys: dict[str, Any] = {
            "rope_local_base_freq": _shortest_f32(
                self._number("rope.freq_base_swa") or DEFAULT_ROPE_THETA
            ),
            "final_logit_softcapping": self._number("final_logit_softcapping") or None,
            "query_pre_attn_scalar": config["head_dim"],
        }
        if config["num_hidden_layers"] == GEMMA3_27B_LAYERS:
            # the only size whose scores are scaled otherwise; no key says so
            keys["query_pre_attn_scalar"] = config["hidden_size"] // config["num_attention_heads"]
        pattern = self._gguf.metadata.get(f"{self._prefix}.attention.sliding_window_pattern")
        if isinstance(pattern, GGUFArray):
            keys["layer_types"] = [
                "sliding_attention" if is_sliding else "full_attention"
                for is_sliding in pattern.numbers()
            ]
        else:
            keys["sliding_window_pattern"] = (
                self._integer("attention.sliding_window_pattern") or GEMMA3_PATTERN
            )
        return keys

    def _integer(self, key: str) -> int | None:
        """An integer key of the architecture; some writers repeat it per layer."""
        full = f"{self._prefix}.{key}"
        if full in self._gguf.metadata and not isinstance(self._gguf.metadata[full], int):
            array = self._gguf.array(full)
            values = set(array.numbers()) if array is not None else set()
            if len(values) != 1:
                raise ConfigError(
                    f"{self._gguf.path} has layers with different {full}, which is not supported "
                    f"for architecture {self._prefix!r}."
                )
            return int(values.pop())
        return self._gguf.integer(full)

    def _needed(self, key: str) -> int:
        value = self._integer(key)
        if value is None:
            raise self._gguf.damaged(f"it lacks {self._prefix}.{key}")
        if not 0 < value < MAX_SIZE:
            raise self._gguf.damaged(f"{self._prefix}.{key} is {value}")
        return value

    def _number(self, key: str) -> float | None:
        """A number that single precision can hold: no infinity, no NaN."""
        value = self._gguf.number(f"{self._prefix}.{key}")
        if value is not None and not abs(value) < MAX_F32:  # NaN compares false
            raise self._gguf.damaged(f"{self._prefix}.{key} is {value}")
        return value

    def _rope_theta(self) -> float:
        theta = self._number("rope.freq_base") or DEFAULT_ROPE_THETA
        if theta < 1:
            raise self._gguf.damaged(f"{self._prefix}.rope.freq_base is {theta}")
        return theta

    def _num_key_value_heads(self, num_heads: int) -> int:
        count = self._integer("attention.head_count_kv") or num_heads
        if num_heads % count:
            raise self._gguf.damaged(f"{num_heads} query heads do not divide by {count} key heads")
        return count

    def _vocab_size(self) -> int:
        """Rows of the embedding: what ids may be; some files have fewer tokens."""
        embedding = self._tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise self._gguf.damaged("it lacks the tensor token_embd.weight")
        return embedding.shape[0]

    def _rope_scaling(self, head_dim: int) -> dict[str, Any] | None:
        """HF's rope_scaling, None for the plain embedding."""
        factors = self._tensors.get("rope_freqs.weight")
        if factors is not None:
            return self._rope_factors(_read_f32(factors), head_dim)
        kind = self._gguf.text(f"{self._prefix}.rope.scaling.type")
        factor = self._number("rope.scaling.factor") or self._number("rope.scale_linear")
        if kind is None and factor is not None and factor != 1.0:
            kind = "linear"  # files from before the type was stored
        if kind in (None, "none"):
            return None
        scaling: dict[str, Any] = {"rope_type": kind, "factor": factor or 1.0}
        original = self._integer("rope.scaling.original_context_length")
        if original is not None:
            scaling["original_max_position_embeddings"] = original
        if kind not in ("linear", "yarn"):
            raise ConfigError(
                f"{self._gguf.path} uses rope scaling of type {shown(kind)}, which is not "
                f"supported for architecture {self._prefix!r}."
            )
        attention_factor = self._number("rope.scaling.attn_factor")
        if kind == "yarn" and attention_factor is not None:
            scaling["attention_factor"] = attention_factor
        return scaling

    def _rope_factors(self, factors: list[float], head_dim: int) -> dict[str, Any]:
        """Llama 3's scaling, which the converter stores as what it comes to: one divisor per
        frequency. Divisors that are not Llama 3's are what HF calls longrope."""
        if len(factors) != head_dim // 2 or not all(0 < factor < MAX_F32 for factor in factors):
            raise self._gguf.damaged("rope_freqs.weight does not have one factor per frequency")
        expected = _llama3_factors(self._rope_theta(), head_dim, max(factors))
        if all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(factors, expected, strict=True)):
            return {
                "rope_type": "llama3",
                "factor": max(factors),
                "low_freq_factor": LLAMA3_LOW_FREQ_FACTOR,
                "high_freq_factor": LLAMA3_HIGH_FREQ_FACTOR,
                "original_max_position_embeddings": LLAMA3_ORIGINAL_WINDOW,
            }
        return {
            "rope_type": "longrope",
            "short_factor": factors,
            "long_factor": factors,
            "factor": 1.0,
            "attention_factor": 1.0,
        }


#: general.architecture -> what its configuration has beyond the keys of all
_MORE_KEYS: Final[dict[str, Callable[[_ConfigReader, dict[str, Any]], dict[str, Any]]]] = {
    "gemma3": _ConfigReader.gemma3_keys,
    "llama": _ConfigReader.llama_keys,
}


def _llama3_factors(theta: float, head_dim: int, factor: float) -> list[float]:
    """Divisor of each frequency: 1 for short waves, `factor` for long ones, a ramp between.
    Source: Llama 3.1's reference code, apply_scaling."""
    factors: list[float] = []
    for pair in range(head_dim // 2):
        wave = 2 * math.pi * theta ** (2 * pair / head_dim)
        turns = LLAMA3_ORIGINAL_WINDOW / wave  # within the original window
        span = LLAMA3_HIGH_FREQ_FACTOR - LLAMA3_LOW_FREQ_FACTOR
        smooth = min(max((turns - LLAMA3_LOW_FREQ_FACTOR) / span, 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def _read_f32(tensor: TensorInfo) -> list[float]:
    if tensor.type is not GGMLType.F32:
        raise ConfigError(
            f"{tensor.file.path}: tensor {tensor.name} has type {tensor.type.name}, which is not "
            "supported for rope factors; F32 is."
        )
    return list(struct.unpack(f"<{tensor.num_bytes // 4}f", tensor.view()))


def _shortest_f32(value: float) -> float:
    """The shortest decimal that is the same number in single precision: 1e-05, not
    9.999999747378752e-06, as config.json had it."""
    single = struct.pack("<f", value)
    for digits in range(1, 9):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == single:
            return short
    return value
