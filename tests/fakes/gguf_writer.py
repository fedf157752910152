"""Writes small GGUF files for tests: any metadata, any tensors, and on request any mistake."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_CODES = {
    U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q",
    I64: "q", F64: "d",
}  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """A metadata value with its GGUF type; arrays: `kind` is the element type."""

    kind: int
    value: object
    is_array: bool = False


@dataclass(frozen=True)
class FakeTensor:
    """Row-major shape and raw bytes (zeros if None); `offset` overrides the place in the data."""

    shape: tuple[int, ...]
    type: int = GGMLType.F32
    data: bytes | None = None
    offset: int | None = None


def text(value: bytes) -> bytes:
    """A GGUF string."""
    return struct.pack("<Q", len(value)) + value


def pack_value(value: object) -> tuple[int, bytes]:
    """GGUF type and bytes of a Python value; int is u32, float f32, lists are arrays."""
    if isinstance(value, Typed):
        if value.is_array:
            assert isinstance(value.value, Sequence)
            body = b"".join(_pack(value.kind, item) for item in value.value)
            return ARRAY, struct.pack("<IQ", value.kind, len(value.value)) + body
        return value.kind, _pack(value.kind, value.value)
    if isinstance(value, bool):
        return BOOL, _pack(BOOL, value)
    if isinstance(value, int):
        return U32, _pack(U32, value)
    if isinstance(value, float):
        return F32, _pack(F32, value)
    if isinstance(value, str | bytes):
        return STRING, _pack(STRING, value)
    assert isinstance(value, list)
    kinds = {pack_value(item)[0] for item in value} or {STRING}
    assert len(kinds) == 1
    kind = kinds.pop()
    body = b"".join(pack_value(item)[1] for item in value)
    return ARRAY, struct.pack("<IQ", kind, len(value)) + body


def gguf_bytes(
    metadata: Mapping[str, object] | Sequence[tuple[str, object]],
    tensors: Mapping[str, FakeTensor] | Sequence[tuple[str, FakeTensor]] = (),
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """The file. Sequences of pairs may hold a name twice."""
    pairs = list(metadata.items()) if isinstance(metadata, Mapping) else list(metadata)
    named = list(tensors.items()) if isinstance(tensors, Mapping) else list(tensors)
    out = b"GGUF" + struct.pack("<IQQ", version, len(named), len(pairs))
    for key, value in pairs:
        kind, body = pack_value(value)
        out += text(key.encode()) + struct.pack("<I", kind) + body
    data = b""
    for name, tensor in named:
        body = tensor.data if tensor.data is not None else bytes(num_bytes(tensor))
        place = len(data) if tensor.offset is None else tensor.offset
        out += text(name.encode()) + struct.pack("<I", len(tensor.shape))
        out += b"".join(struct.pack("<Q", size) for size in reversed(tensor.shape))
        out += struct.pack("<IQ", tensor.type, place)
        data += body + bytes(-len(body) % alignment)
    return out + bytes(-len(out) % alignment) + data


def num_bytes(tensor: FakeTensor) -> int:
    """Bytes of a tensor of a known type."""
    block, block_bytes = BLOCK_SHAPE[GGMLType(tensor.type)]
    return int(np.prod(tensor.shape)) // block * block_bytes


def llama_metadata(**changes: object) -> dict[str, object]:
    """Metadata of a tiny Llama: 2 layers, hidden 32, 4 query and 2 key heads of 8; `changes` are
    keys with `__` for the dots, None removes."""
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "llama.block_count": 2,
        "llama.context_length": 128,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.eos_token_id": 2,
    }
    for key, value in changes.items():
        name = key.replace("__", ".")
        if value is None:
            del metadata[name]
        else:
            metadata[name] = value
    return metadata


def llama_tensors(vocab_size: int = 40, *, seed: int = 0) -> dict[str, FakeTensor]:
    """Random F32 weights for `llama_metadata`, with tied embeddings."""
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab_size, 32),
        "output_norm.weight": (32,),
    }
    for layer in range(2):
        prefix = f"blk.{layer}."
        shapes |= {
            prefix + "attn_norm.weight": (32,),
            prefix + "attn_q.weight": (32, 32),
            prefix + "attn_k.weight": (16, 32),
            prefix + "attn_v.weight": (16, 32),
            prefix + "attn_output.weight": (32, 32),
            prefix + "ffn_norm.weight": (32,),
            prefix + "ffn_gate.weight": (64, 32),
            prefix + "ffn_up.weight": (64, 32),
            prefix + "ffn_down.weight": (32, 64),
        }
    return {
        name: FakeTensor(shape, data=random.standard_normal(shape, dtype=np.float32).tobytes())
        for name, shape in shapes.items()
    }


def write_gguf(path: Path, *args: object, **kwargs: object) -> str:
    """`gguf_bytes` into a file; gives its path."""
    path.write_bytes(gguf_bytes(*args, **kwargs))  # type: ignore[arg-type]
    return str(path)


def _pack(kind: int, value: object) -> bytes:
    if kind == STRING:
        assert isinstance(value, str | bytes)
        return text(value if isinstance(value, bytes) else value.encode())
    return struct.pack("<" + _CODES[kind], value)
