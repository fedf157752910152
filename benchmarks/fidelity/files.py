"""The checkpoints that are measured: real models, and others made of their weights.

Made files lie in `.cache/fidelity` of this tree, and are made once.

Knows nothing of: routes, scores.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import torch
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize
from safetensors.torch import save_file

from octavo.envs import read_environ
from octavo.ops.dequantize import dequantize
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.facts import read_facts
from octavo.weights.hub import hub_settings, locate
from scripts.models import path_of

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "fidelity"

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
#: model -> its name in scripts/models.py
OTHER_MODELS = {"Gemma-3-270M": "gemma3-270m", "Qwen2.5-Coder-0.5B-Instruct": "qwen2.5-coder-0.5b"}
MODELS = (DEFAULT_MODEL, *OTHER_MODELS)
#: kinds that the gguf package can write
WRITTEN_KINDS = ("Q4_0", "Q5_0", "Q5_1", "Q8_0")
#: mixtures of kinds that llama-quantize can write
LLAMA_KINDS = ("Q4_K_M", "Q5_K_M", "Q6_K")


@dataclass(frozen=True)
class CheckpointFile:
    """One checkpoint.

    Attributes:
        model: whose weights.
        weights: how they are stored, for the table.
        path: GGUF file or folder.
        tokenizer: where its tokenizer is.
        is_made: by this benchmark, of another file's weights.
    """

    model: str
    weights: str
    path: str
    tokenizer: str
    is_made: bool = False

    @property
    def is_gguf(self) -> bool:
        """A GGUF file, not a folder."""
        return self.path.endswith(".gguf")


def checkpoint_files(models: tuple[str, ...], llama_quantize: str | None) -> list[CheckpointFile]:
    """The checkpoints of these models; fetches and makes what is not there.

    Args:
        models: of `MODELS`.
        llama_quantize: llama.cpp's program of this name, for kinds that only it writes.
    """
    files = []
    for model in models:
        if model == DEFAULT_MODEL:
            shipped = locate(None, hub_settings(read_environ()))
            files += [CheckpointFile(model, "GGUF Q4_1", shipped, shipped)]
            files += _made_of(model, shipped, llama_quantize)
        else:
            path = str(path_of(OTHER_MODELS[model]))
            files += [CheckpointFile(model, "GGUF Q4_K_M", path, path)]
    return files


def _made_of(model: str, shipped: str, llama_quantize: str | None) -> Iterator[CheckpointFile]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = FOLDER / f"{model}-bf16"
    if not folder.exists():
        _write_bfloat16(shipped, folder)
    yield CheckpointFile(model, "safetensors bf16", str(folder), shipped, is_made=True)
    for kind in WRITTEN_KINDS:
        path = FOLDER / f"{model}.{kind}.gguf"
        if not path.exists():
            _write_gguf(shipped, path, gguf.GGMLQuantizationType[kind])
        yield CheckpointFile(model, f"GGUF {kind}", str(path), str(path), is_made=True)
    if llama_quantize is None:
        return
    wide = FOLDER / f"{model}.F32.gguf"
    if not wide.exists():
        _write_gguf(shipped, wide, gguf.GGMLQuantizationType.F32)
    for kind in LLAMA_KINDS:
        path = FOLDER / f"{model}.{kind}.gguf"
        if not path.exists():
            subprocess.run(
                [llama_quantize, str(wide), str(path), kind], check=True, capture_output=True
            )
        yield CheckpointFile(model, f"GGUF {kind}", str(path), str(path), is_made=True)


def _write_bfloat16(source: str, folder: Path) -> None:
    """The weights of a GGUF file rounded to bfloat16, as a folder with Hugging Face's layout."""
    checkpoint = open_checkpoint(source)
    tensors = {
        name: torch.from_numpy(dequantize(checkpoint.get(name))).to(torch.bfloat16)
        for name in checkpoint.tensor_names
    }
    checkpoint.close()
    temporary = folder.with_suffix(".part")
    temporary.mkdir(exist_ok=True)
    config = {**read_facts(source).hf_config, "torch_dtype": "bfloat16"}
    (temporary / "config.json").write_text(json.dumps(config))
    save_file(tensors, temporary / "model.safetensors")
    temporary.rename(folder)


def _write_gguf(source: str, path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """The same file with its matrices in another kind; the embedding only in F32."""
    reader = gguf.GGUFReader(source)
    temporary = path.with_suffix(".part")
    writer = gguf.GGUFWriter(temporary, reader.fields[gguf.Keys.General.ARCHITECTURE].contents())
    for field in reader.fields.values():
        if field.name == gguf.Keys.General.ARCHITECTURE or field.name.startswith("GGUF."):
            continue
        is_array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(
            field.name,
            field.contents(),
            field.types[0],
            sub_type=field.types[-1] if is_array else None,
        )
    is_wide = kind == gguf.GGMLQuantizationType.F32
    for tensor in reader.tensors:
        data, stored = tensor.data, tensor.tensor_type
        is_matrix = len(tensor.shape) == 2
        if is_matrix and (is_wide or tensor.name != "token_embd.weight"):
            data, stored = gguf_quantize(gguf_dequantize(data, stored), kind), kind
        writer.add_tensor(tensor.name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.rename(path)
