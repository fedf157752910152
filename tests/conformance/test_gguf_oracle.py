"""Our GGUF reader agrees with the `gguf` package, on its own files and on the default model."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from octavo.envs import read_environ
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.weights.gguf import GGUFFile
from octavo.weights.hub import hub_settings, locate


def test_block_sizes_are_the_packages() -> None:
    sizes = {kind: gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)] for kind in GGMLType}
    assert sizes == BLOCK_SHAPE


def test_a_file_of_the_packages_writer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint64("big", 2**63 + 1)
    writer.add_float64("double", 0.1)
    writer.add_array("words", ["\u4f60", "", "b"])
    writer.add_array("floats", [0.5, -1.5])
    random = np.random.default_rng(0)
    arrays = {
        "a": random.standard_normal((3, 64)).astype(np.float32),
        "b": random.standard_normal(7).astype(np.float16),
    }
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    quantised = gguf.quantize(arrays["a"], gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    read = GGUFFile(str(path))
    assert read.integer("big") == 2**63 + 1
    assert read.number("double") == 0.1
    words, floats = read.array("words"), read.array("floats")
    assert words is not None
    assert words.strings() == ["\u4f60", "", "b"]
    assert floats is not None
    assert floats.numbers() == [0.5, -1.5]
    assert {name: (info.type, info.shape) for name, info in read.tensors.items()} == {
        "a": (GGMLType.F32, (3, 64)),
        "b": (GGMLType.F16, (7,)),
        "q": (GGMLType.Q8_0, (3, 64)),
    }
    for name, array in {**arrays, "q": quantised}.items():
        assert bytes(read.tensors[name].view()) == array.tobytes()


@pytest.mark.filterwarnings("ignore")  # the package's, about numpy
def test_the_default_model_is_read_as_by_the_package() -> None:
    path = locate(None, hub_settings(read_environ()))
    theirs, ours = gguf.GGUFReader(path), GGUFFile(path)
    assert [tensor.name for tensor in theirs.tensors] == list(ours.tensors)
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert info.type == tensor.tensor_type
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        assert (info.offset, info.num_bytes) == (tensor.data_offset, tensor.n_bytes)
    for key, value in ours.metadata.items():
        expected = theirs.fields[key].contents()
        assert (
            value if isinstance(value, bool | int | float | str) else value.tolist()
        ) == expected
    assert set(ours.metadata) == {key for key in theirs.fields if not key.startswith("GGUF.")}
