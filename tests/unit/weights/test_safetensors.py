"""Safetensors files are read exactly, and bad ones end in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from octavo.errors import ConfigError, OctavoError, StartupError
from octavo.ops.ggml_type import GGMLType
from octavo.weights.safetensors import SafetensorsFile, safetensors_paths
from tests.fakes.safetensors_writer import safetensors_bytes, with_header


def open_bytes(folder: Path, data: bytes) -> SafetensorsFile:
    path = folder / "model.safetensors"
    path.write_bytes(data)
    return SafetensorsFile(str(path))


def test_a_file_of_the_official_writer_is_read(tmp_path: Path) -> None:
    arrays = {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "h": np.arange(5, dtype=np.float16),
        "ids": np.arange(3),
    }
    file = open_bytes(tmp_path, save(arrays))
    assert {name: (info.type, info.shape) for name, info in file.tensors.items()} == {
        "w": (GGMLType.F32, (3, 4)),
        "h": (GGMLType.F16, (5,)),
    }
    assert bytes(file.tensors["w"].view()) == arrays["w"].tobytes()
    assert file.other_dtypes == {"ids": "I64"}


def test_bf16_keeps_its_bits(tmp_path: Path) -> None:
    bits = np.array([[0x3F80, 0x4000]], dtype=np.uint16)
    info = open_bytes(tmp_path, safetensors_bytes({"w": bits})).tensors["w"]
    assert info.type is GGMLType.BF16
    assert bytes(info.view()) == bits.tobytes()


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> bytes:
    return json.dumps({"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()


BAD_FILES = {
    "empty": (b"", "it is empty"),
    "short": (b"\x01\x02", "ends inside the header's length"),
    "huge header": (b"\xff" * 7 + b"\x3f" + bytes(8), "its header claims to be"),
    "header cut": (with_header(b"{}" + b" " * 50)[:30], "it ends inside the header"),
    "not json": (with_header(b"{nope"), "its header cannot be read"),
    "not utf-8": (with_header(b'{"\xff": 1}'), "its header cannot be read"),
    "deep": (with_header(b'{"a":' * 100_000), "its header cannot be read"),
    "a list": (with_header(b"[]"), "its header is not a JSON object"),
    "no offsets": (with_header(b'{"t": {"dtype": "F32", "shape": [2]}}'), "has no dtype, shape"),
    "three offsets": (with_header(entry(offsets=[0, 4, 8])), "has no dtype, shape"),
    "negative": (with_header(entry(shape=[-2]), bytes(8)), "not a whole number"),
    "fraction": (with_header(entry(shape=[0.5]), bytes(8)), "not a whole number"),
    "true": (with_header(entry(shape=[True]), bytes(8)), "not a whole number"),
    "length": (with_header(entry(shape=[3]), bytes(8)), "does not have 8 bytes"),
    "huge shape": (with_header(entry(shape=[2**62, 2**62]), bytes(8)), "does not have 8 bytes"),
    "data cut": (with_header(entry(), bytes(7)), "tensor t should end at byte"),
    "backwards": (with_header(entry(dtype="F4", offsets=[8, 0]), bytes(8)), "should end at byte"),
    "control characters": (
        with_header(entry().replace(b'"t"', b'"a\\nb"'), bytes(8)),
        "the tensor name a.b has control characters",
    ),
    "odd type": (with_header(entry(dtype="F 4"), bytes(8)), "tensor t has the type F 4"),
    "twice": (with_header(entry()[:-1] + b"," + entry()[1:], bytes(8)), "t is there twice"),
    "overlap": (
        with_header(entry()[:-1] + b"," + entry().replace(b'"t"', b'"u"')[1:], bytes(8)),
        "tensors t and u overlap",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_sentence_with_its_name(tmp_path: Path, name: str) -> None:
    data, expected = BAD_FILES[name]
    with pytest.raises(StartupError, match=expected) as caught:
        open_bytes(tmp_path, data)
    assert str(tmp_path / "model.safetensors") in caught.value.message
    assert "\n" not in caught.value.message


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, 300), replacement=st.binary(min_size=1, max_size=8))
def test_changed_bytes_never_end_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, replacement: bytes
) -> None:
    arrays = {"w": np.ones((2, 3), np.float32), "v": np.ones(4, np.float16)}
    data = bytearray(safetensors_bytes(arrays))
    data[place : place + len(replacement)] = replacement
    folder = tmp_path_factory.mktemp("fuzz")
    try:
        for info in open_bytes(folder, bytes(data)).tensors.values():
            assert info.offset + info.num_bytes <= len(data)
    except OctavoError:
        pass  # the one kind of error there may be


def test_shards_of_an_index_are_listed_once(tmp_path: Path) -> None:
    for name in ("model-1.safetensors", "model-2.safetensors", "consolidated.safetensors"):
        (tmp_path / name).write_bytes(b"x")
    weight_map = {"a": "model-2.safetensors", "b": "model-1.safetensors"} | {
        "c": "model-1.safetensors"
    }
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    expected = [str(tmp_path / f"model-{number}.safetensors") for number in (1, 2)]
    assert safetensors_paths(str(tmp_path)) == expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ('{"weight_map": {"a": "missing.safetensors"}}', "lacks 'missing.safetensors'"),
        ('{"weight_map": {"a": "../other.safetensors"}}', "outside its folder"),
        ('{"weight_map": 3}', "has no weight_map"),
        ("[]", "is not a JSON object"),
        ("{", "is not valid JSON"),
    ],
)
def test_a_bad_index_is_one_sentence(tmp_path: Path, index: str, expected: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(StartupError, match=expected):
        safetensors_paths(str(tmp_path))


def test_files_without_an_index_are_ambiguous_and_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no \.safetensors file"):
        safetensors_paths(str(tmp_path))
    (tmp_path / "a.safetensors").write_bytes(b"x")
    assert safetensors_paths(str(tmp_path)) == [str(tmp_path / "a.safetensors")]
    (tmp_path / "b.safetensors").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"has 2 \.safetensors files but no"):
        safetensors_paths(str(tmp_path))
