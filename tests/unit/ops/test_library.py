"""The ctypes mirror and the loader of the native library."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import StartupError
from octavo.ops import library as library_module
from octavo.ops.abi import PROTOTYPES, STRUCTS
from octavo.ops.ggml_type import GGMLType
from octavo.ops.library import LIBRARY_DIR, available_isas, best_isa, load_library
from octavo.ops.program import ElementType
from octavo.platforms.cpu import runnable_isas

HEADER = Path(__file__).parents[3] / "csrc/include/octavo.h"
ISAS = available_isas()


def test_every_level_that_this_cpu_runs_was_built() -> None:
    assert list(runnable_isas(best_isa())) == ISAS


@pytest.mark.parametrize("isa", ISAS)
def test_each_library_is_of_the_level_its_name_says(isa: str) -> None:
    assert load_library(isa).isa == isa


def test_without_a_wish_the_best_level_is_loaded() -> None:
    assert load_library().isa == best_isa()


def test_the_mirror_declares_exactly_the_functions_of_the_header() -> None:
    assert set(PROTOTYPES) == set(re.findall(r"OV_API [^;(]*?\b(ov_\w+)\(", HEADER.read_text()))


def test_the_mirror_has_the_fields_of_the_header_in_its_order() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    for name, mirror in STRUCTS.items():
        found = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", text, re.S)
        assert found, name
        declared = []
        for line in filter(None, (part.strip() for part in found[1].split(";"))):
            for part in line.split(","):
                declared += re.findall(r"(\w+)(?:\[\d+\])?$", part.strip())
        assert ["in" if field[0] == "in_" else field[0] for field in mirror._fields_] == declared


@pytest.mark.parametrize("isa", ISAS)
def test_struct_sizes_agree_with_the_compiler(isa: str) -> None:
    library = load_library(isa)
    sizes = {name: library.ov_sizeof(name.encode()) for name in STRUCTS}
    assert sizes == {name: library_module.sizeof(mirror) for name, mirror in STRUCTS.items()}
    assert library.ov_sizeof(b"ov_nothing") == 0


def test_only_the_declared_symbols_are_exported() -> None:
    path = Path(LIBRARY_DIR) / f"liboctavo_{best_isa()}.so"
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(path)], check=True, capture_output=True, text=True
    ).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    assert exported == set(PROTOTYPES)


def test_an_unknown_level_is_a_sentence() -> None:
    with pytest.raises(StartupError, match=r"unknown instruction-set level 'avx3'.*scalar"):
        load_library("avx3")


def test_a_level_beyond_this_cpu_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "best_isa", lambda: "avx2")
    for isa in ("amx", "neon_dotprod"):
        with pytest.raises(StartupError, match=f"does not run the level '{isa}'"):
            load_library(isa)


def test_a_missing_library_names_the_command_that_builds_it(tmp_path: Path) -> None:
    assert available_isas(tmp_path) == []
    with pytest.raises(StartupError, match="is missing; run `make native`"):
        load_library(directory=tmp_path)


def test_a_file_that_is_no_library_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "liboctavo_scalar.so").write_bytes(b"not a library")
    with pytest.raises(StartupError, match=r"cannot be loaded .*make native"):
        load_library("scalar", tmp_path)


def test_a_library_of_other_sources_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "liboctavo_scalar.so").symlink_to(Path(LIBRARY_DIR) / "liboctavo_scalar.so")
    monkeypatch.setattr(library_module, "ABI_VERSION", 0)
    with pytest.raises(StartupError, match="built from other sources"):
        load_library("scalar", tmp_path)


def test_unknown_functions_are_no_attributes() -> None:
    with pytest.raises(AttributeError):
        load_library().ov_nothing  # noqa: B018


@pytest.mark.parametrize("isa", ISAS)
def test_rows_have_the_documented_size_and_are_padded_to_64_bytes(isa: str) -> None:
    library = load_library(isa)
    assert library.row_bytes(ElementType.F32, 1) == 64
    assert library.row_bytes(ElementType.F32, 576) == 2304
    assert library.row_bytes(ElementType.BF16, 33) == 128
    for cols in (1, 32, 33, 576, 1536):
        groups = -(-cols // 32)
        size = 32 * groups + 4 * groups + 4 * groups + 8 * groups
        prompt_type = library.input_type(GGMLType.Q8_0, is_prompt=True)
        if prompt_type == ElementType.BF16:
            size = max(size, 2 * 32 * groups)
        elif prompt_type == ElementType.A8R:
            wide = -(-cols // 64)
            size = max(size, 64 * wide + 4 * wide)
        assert library.row_bytes(ElementType.A8, cols) == -(-size // 64) * 64


@pytest.mark.parametrize("isa", ISAS)
def test_half_precision_converts_exactly_with_denormals_infinities_and_nan(isa: str) -> None:
    halves = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        expected = halves.view(np.float16).astype(np.float32)
    got = load_library(isa).convert(GGMLType.F16, halves.tobytes(), halves.size)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("isa", ISAS)
def test_conversion_to_bfloat16_rounds_to_nearest_even_and_keeps_nan(isa: str) -> None:
    library = load_library(isa)
    bits = np.array(
        [
            0x3F800000,
            0x3F808000,
            0x3F818000,
            0x3F808001,
            0xBF808000,
            0x7F7FFFFF,
            0x7F800001,
            0x00000001,
        ],
        np.uint32,
    )
    out = np.zeros(bits.size, np.uint16)
    code = library.ov_convert(
        GGMLType.F32, bits.ctypes.data, bits.size, GGMLType.BF16, out.ctypes.data
    )
    assert code == 0
    assert [hex(x) for x in out] == [
        "0x3f80", "0x3f80", "0x3f82", "0x3f81", "0xbf80", "0x7f80", "0x7fc0", "0x0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "count", "target", "sentence"),
    [
        (99, 32, 0, "type 99"),
        (GGMLType.Q4_0, 33, 0, "33 values of type Q4_0"),
        (GGMLType.F32, 32, GGMLType.Q4_0, "only to F32 and BF16"),
    ],
)
def test_conversions_that_cannot_be_done_say_why(
    source: int, count: int, target: int, sentence: str
) -> None:
    library = load_library()
    data = np.zeros(256, np.uint8)
    assert library.ov_convert(source, data.ctypes.data, count, target, data.ctypes.data) < 0
    assert sentence in library.last_error()


@pytest.mark.parametrize("size", [1, 4096, 5 << 20])
def test_mapped_memory_is_zero_aligned_and_can_be_given_back(size: int) -> None:
    library = load_library()
    address = library.map_memory(size)
    assert address is not None
    assert address % 4096 == 0
    view = np.ctypeslib.as_array((library_module.ctypes.c_uint8 * size).from_address(address))
    assert not view.any()
    view[:] = 7
    library.ov_memory_unmap(address, size)


def test_memory_that_does_not_exist_is_none() -> None:
    assert load_library().map_memory(1 << 60) is None
    assert load_library().map_memory(0) is None
