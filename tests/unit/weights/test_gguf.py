"""GGUF files are read exactly, and bad ones end in one sentence."""

from __future__ import annotations

import resource
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ConfigError, OctavoError, StartupError
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.weights.gguf import GGUFFile, joined_tensors, open_shards
from tests.fakes.gguf_writer import (
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U64,
    FakeTensor,
    Typed,
    gguf_bytes,
    llama_metadata,
    llama_tensors,
    num_bytes,
    text,
    write_gguf,
)


def open_bytes(folder: Path, data: bytes) -> GGUFFile:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return GGUFFile(str(path))


@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type_is_read(tmp_path: Path, version: int) -> None:
    metadata = {
        "u8": Typed(U8, 200), "i8": Typed(I8, -5), "u16": Typed(U16, 60000), "i16": Typed(I16, -9),
        "u32": 4_000_000_000, "i32": Typed(I32, -7), "f32": 0.5, "bool": True, "text": "h\u00e9",
        "u64": Typed(U64, 2**63), "i64": Typed(I64, -(2**40)), "f64": Typed(F64, 0.1),
    }  # fmt: skip
    gguf = open_bytes(tmp_path, gguf_bytes(metadata, version=version))
    expected = {
        "u8": 200, "i8": -5, "u16": 60000, "i16": -9, "u32": 4_000_000_000, "i32": -7, "f32": 0.5,
        "bool": True, "text": "h\u00e9", "u64": 2**63, "i64": -(2**40), "f64": 0.1,
    }  # fmt: skip
    assert gguf.metadata == expected
    assert gguf.version == version


@pytest.mark.parametrize("keep_strings", [False, True])
def test_arrays_are_read_on_demand_whether_strings_were_kept_or_not(
    tmp_path: Path, keep_strings: bool
) -> None:
    strings = ["", "a", "\u0120x", "n\nn", "z\0z", "long" * 100]
    metadata = {
        "strings": strings,
        "numbers": Typed(I32, [1, -2, 3], is_array=True),
        "nested": [["a", "b"], ["c"]],
        "empty": Typed(STRING, [], is_array=True),
        "after": 7,
    }
    path = write_gguf(tmp_path / "m.gguf", metadata)
    gguf = GGUFFile(path, keep_strings=keep_strings)
    read = {key: gguf.array(key) for key in metadata if key != "after"}
    assert all(array is not None for array in read.values())
    assert {key: array.tolist() for key, array in read.items() if array} == {
        "strings": strings,
        "numbers": [1, -2, 3],
        "nested": [["a", "b"], ["c"]],
        "empty": [],
    }
    assert gguf.integer("after") == 7


def test_accessors_give_none_for_absent_keys_and_refuse_other_types(tmp_path: Path) -> None:
    gguf = open_bytes(tmp_path, gguf_bytes({"text": "x", "number": 1, "list": [1], "flag": True}))
    absent = (gguf.text("no"), gguf.integer("no"), gguf.number("no"), gguf.flag("no"))
    assert absent == (None, None, None, None)
    assert gguf.array("no") is None
    for read, key in (
        (gguf.text, "number"),
        (gguf.integer, "flag"),
        (gguf.number, "text"),
        (gguf.flag, "number"),
        (gguf.array, "text"),
    ):
        with pytest.raises(StartupError, match=f"the metadata key {key} is not"):
            read(key)
    numbers = gguf.array("list")
    assert numbers is not None
    with pytest.raises(StartupError, match="list is not a list of strings"):
        numbers.strings()


@pytest.mark.parametrize("kind", list(GGMLType))
def test_each_tensor_type_has_its_size_and_place(tmp_path: Path, kind: GGMLType) -> None:
    columns = 2 * BLOCK_SHAPE[kind][0]
    first = FakeTensor((3, columns), kind)
    body = bytes(range(1, 255))[: num_bytes(FakeTensor((1, columns), kind))]
    second = FakeTensor((1, columns), kind, body + bytes(num_bytes(first) // 3 - len(body)))
    gguf = open_bytes(tmp_path, gguf_bytes({}, {"a": first, "b": second}))
    info = gguf.tensors["b"]
    assert (info.type, info.shape, info.num_bytes) == (kind, (1, columns), num_bytes(second))
    assert bytes(info.view()[: len(body)]) == body


def test_alignment_of_the_file_is_respected(tmp_path: Path) -> None:
    tensors = {"a": FakeTensor((3,), data=b"x" * 12), "b": FakeTensor((3,), data=b"y" * 12)}
    data = gguf_bytes({"general.alignment": 64}, tensors, alignment=64)
    assert bytes(open_bytes(tmp_path, data).tensors["b"].view()) == b"y" * 12


def test_pages_of_a_tensor_can_be_given_back_and_read_again(tmp_path: Path) -> None:
    body = bytes(range(256)) * 64
    info = open_bytes(tmp_path, gguf_bytes({}, {"a": FakeTensor((4096,), data=body)})).tensors["a"]
    before = bytes(info.view())
    info.release()
    assert bytes(info.view()) == before == body


def test_views_outlive_the_closed_file(tmp_path: Path) -> None:
    gguf = open_bytes(tmp_path, gguf_bytes({}, {"a": FakeTensor((2,), data=b"12345678")}))
    view = gguf.tensors["a"].view()
    gguf.close()
    assert bytes(view) == b"12345678"


HUGE = struct.pack("<Q", 2**62)
HEADER = b"GGUF" + struct.pack("<I", 3)
BAD_FILES = {
    "empty": (b"", "it is empty"),
    "not gguf": (b"PK\x03\x04" + bytes(64), "does not begin with the letters GGUF"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is GGUF version 1"),
    "big endian": (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
    "tensor count": (HEADER + HUGE + struct.pack("<Q", 0), "more than fit in the file"),
    "key count": (HEADER + struct.pack("<Q", 0) + HUGE, "more than fit in the file"),
    "key length": (
        HEADER + struct.pack("<QQ", 0, 1) + HUGE + bytes(64),
        f"a metadata key claims to be {2**62} bytes long",
    ),
    "text length": (
        HEADER + struct.pack("<QQ", 0, 1) + text(b"k") + struct.pack("<I", STRING) + HUGE,
        "k claims to be",
    ),
    "array count": (
        HEADER + struct.pack("<QQ", 0, 1) + text(b"k") + struct.pack("<II", 9, 4) + HUGE,
        f"k claims {2**62} elements",
    ),
    "array element type": (
        HEADER + struct.pack("<QQ", 0, 1) + text(b"k") + struct.pack("<IIQ", 9, 99, 1) + bytes(9),
        "k has the unknown element type 99",
    ),
    "string array runs out": (
        HEADER
        + struct.pack("<QQ", 0, 1)
        + text(b"k")
        + struct.pack("<IIQ", 9, STRING, 2)
        + text(b"ab")
        + HUGE,
        "it ends inside k",
    ),
    "value type": (
        HEADER + struct.pack("<QQ", 0, 1) + text(b"k") + struct.pack("<I", 77),
        "k has the unknown value type 77",
    ),
    "key not utf-8": (gguf_bytes([("k", 1)]).replace(text(b"k"), text(b"\xff")), "is not UTF-8"),
    "value not utf-8": (gguf_bytes({"k": b"\xff\xfe"}), "k is not UTF-8"),
    "control characters": (gguf_bytes({"a\nb": 1}), "a metadata key, a.b, has control"),
    "long key": (gguf_bytes({"k" * 2000: 1}), "a metadata key claims to be 2000 bytes"),
    "duplicate key": (gguf_bytes([("k", 1), ("k", 2)]), "metadata key k is there twice"),
    "alignment zero": (gguf_bytes({"general.alignment": 0}), "general.alignment is 0"),
    "alignment odd": (gguf_bytes({"general.alignment": 33}), "general.alignment is 33"),
    "duplicate tensor": (
        gguf_bytes({}, [("t", FakeTensor((8,))), ("t", FakeTensor((8,)))]),
        "tensor t is there twice",
    ),
    "past the end": (
        gguf_bytes({}, {"t": FakeTensor((8,), offset=3200)}),
        "tensor t should end at byte",
    ),
    "huge offset": (
        gguf_bytes({}, {"t": FakeTensor((8,), offset=2**64 - 32)}),
        "tensor t should end at byte",
    ),
    "overlap": (
        gguf_bytes({}, {"t": FakeTensor((16,), offset=0), "u": FakeTensor((16,), offset=32)}),
        "tensors t and u overlap",
    ),
    "misaligned": (
        gguf_bytes({}, {"t": FakeTensor((4,), offset=4), "u": FakeTensor((4,))}),
        "tensor t is not aligned",
    ),
    "no dimensions": (gguf_bytes({}, {"t": FakeTensor((), data=bytes(32))}), "has 0 dimensions"),
    "five dimensions": (gguf_bytes({}, {"t": FakeTensor((1,) * 5)}), "has 5 dimensions"),
    "empty dimension": (gguf_bytes({}, {"t": FakeTensor((0, 4))}), r"tensor t has shape \[0, 4\]"),
    "half a block": (
        gguf_bytes({}, {"t": FakeTensor((1, 20), GGMLType.Q8_0, bytes(64))}),
        "which type Q8_0 cannot have",
    ),
    "type": (
        gguf_bytes({}, {"t": FakeTensor((1, 256), 16, bytes(64))}),
        "tensor t has type IQ2_XXS, which is not supported",
    ),
    "unknown type": (
        gguf_bytes({}, {"t": FakeTensor((1, 256), 999, bytes(64))}),
        "tensor t has type number 999",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_sentence_with_its_name(tmp_path: Path, name: str) -> None:
    data, expected = BAD_FILES[name]
    with pytest.raises(StartupError, match=expected) as caught:
        _ = open_bytes(tmp_path, data).tensors
    assert str(tmp_path / "model.gguf") in caught.value.message
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message


def test_strings_that_are_not_utf8_are_found_when_they_are_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"k": [b"ok", b"\xff"]})
    array = GGUFFile(path).array("k")
    assert array is not None
    with pytest.raises(StartupError, match="k holds text that is not UTF-8"):
        array.strings()
    with pytest.raises(StartupError, match="k holds text that is not UTF-8"):
        GGUFFile(path, keep_strings=True)


def test_arrays_nested_too_deep_are_refused(tmp_path: Path) -> None:
    nested: object = [1]
    for _ in range(5):
        nested = [nested]
    with pytest.raises(StartupError, match="nested more than 4 deep"):
        open_bytes(tmp_path, gguf_bytes({"k": nested}))


def test_what_is_not_a_readable_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        GGUFFile(str(tmp_path / "none.gguf"))
    with pytest.raises(ConfigError, match="is a folder where a GGUF file is needed"):
        GGUFFile(str(tmp_path))


@pytest.fixture(scope="module")
def whole_file() -> bytes:
    metadata = llama_metadata(
        tokenizer__ggml__tokens=["a", "b" * 300, ""], nested=[[1], [2, 3]], flag=True
    )
    tensors = {"q": FakeTensor((2, 64), GGMLType.Q4_1), **llama_tensors()}
    return gguf_bytes(metadata, tensors)


def test_a_file_cut_anywhere_is_one_sentence(tmp_path: Path, whole_file: bytes) -> None:
    length = len(whole_file)
    cuts = [*range(0, 3000, 7), *range(3000, length, 997), length - 1]
    for cut in cuts:
        with pytest.raises(StartupError, match="GGUF file"):
            _ = open_bytes(tmp_path, whole_file[:cut]).tensors


@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4
    )
)
def test_changed_bytes_never_end_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, whole_file: bytes, changes: list[tuple[int, bytes]]
) -> None:
    data = bytearray(whole_file)
    for place, replacement in changes:
        data[place : place + len(replacement)] = replacement
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    path.write_bytes(data)
    try:
        gguf = GGUFFile(str(path))
        for key in gguf.metadata:
            value = gguf.metadata[key]
            if not isinstance(value, bool | int | float | str):
                value.tolist()
        for info in gguf.tensors.values():
            assert info.offset + info.num_bytes <= len(data)
    except OctavoError:
        pass  # the one kind of error there may be
    finally:
        path.unlink()


def test_absurd_counts_allocate_nothing(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("tensor count", "key count", "key length", "text length", "array count"):
        with pytest.raises(StartupError):
            open_bytes(tmp_path, BAD_FILES[name][0])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


def test_shards_are_joined(tmp_path: Path) -> None:
    names = [f"m-{number:05d}-of-00002.gguf" for number in (1, 2)]
    for number, (name, tensor) in enumerate(zip(names, ("a", "b"), strict=True)):
        metadata = {"split.no": number, "split.count": 2, "split.tensors.count": 2}
        write_gguf(tmp_path / name, metadata, {tensor: FakeTensor((8,))})
    shards = open_shards(GGUFFile(str(tmp_path / names[0])))
    assert set(joined_tensors(shards)) == {"a", "b"}
    with pytest.raises(ConfigError, match=r"is shard 2 of 2; name the first one"):
        open_shards(GGUFFile(str(tmp_path / names[1])))
    (tmp_path / names[1]).unlink()
    with pytest.raises(ConfigError, match=r"No such file: .*-00002-of-00002\.gguf"):
        open_shards(GGUFFile(str(tmp_path / names[0])))


def test_shards_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    metadata = {"split.no": 0, "split.count": 2, "split.tensors.count": 3}
    first = write_gguf(tmp_path / "m-00001-of-00002.gguf", metadata, {"a": FakeTensor((8,))})
    second = tmp_path / "m-00002-of-00002.gguf"
    write_gguf(second, {"split.no": 0, "split.count": 2}, {"b": FakeTensor((8,))})
    with pytest.raises(StartupError, match="it is not shard 2 of 2"):
        open_shards(GGUFFile(first))
    write_gguf(second, {"split.no": 1, "split.count": 2}, {"b": FakeTensor((8,))})
    with pytest.raises(StartupError, match="its shards hold 2 tensors, not 3"):
        joined_tensors(open_shards(GGUFFile(first)))
    write_gguf(second, {"split.no": 1, "split.count": 2}, {"a": FakeTensor((8,))})
    with pytest.raises(StartupError, match="tensor a is in another shard too"):
        joined_tensors(open_shards(GGUFFile(first)))
    lone = write_gguf(tmp_path / "renamed.gguf", metadata, {"a": FakeTensor((8,))})
    with pytest.raises(ConfigError, match="its name must end in"):
        open_shards(GGUFFile(lone))


def test_a_vocabulary_of_fifty_thousand_is_read_in_time(tmp_path: Path) -> None:
    tokens = [f"\u0120token{number}" for number in range(49152)]
    path = write_gguf(tmp_path / "m.gguf", {"tokens": tokens})
    times = []
    for _ in range(5):
        start = time.process_time()
        array = GGUFFile(path, keep_strings=True).array("tokens")
        times.append(time.process_time() - start)
        assert array is not None
        assert array.count == len(tokens)
    assert min(times) < 0.070  # twice the budget of 35 ms: other tests share the machine


@pytest.mark.parametrize("keep_strings", [False, True])
def test_strings_are_found_without_reading_all(tmp_path: Path, keep_strings: bool) -> None:
    words = [f"w{number}" for number in range(10_000)]
    words[7] = struct.pack("<Q", 5).decode() + "w9999"  # looks like the last one inside a string
    path = write_gguf(tmp_path / "m.gguf", {"a": words, "b": [1, 2], "c": []})
    gguf = GGUFFile(path, keep_strings=keep_strings)
    array, numbers, empty = (gguf.array(key) for key in "abc")
    assert array is not None
    assert numbers is not None
    assert empty is not None
    assert array.indices_of(["w9999", "absent", "w0", "w4096", "w"]) == [9999, 0, 4096]
    assert empty.indices_of(["w0"]) == []
    with pytest.raises(StartupError, match="b is not a list of strings"):
        numbers.indices_of(["w0"])
