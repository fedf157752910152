"""How fast this machine's arithmetic can be, measured by benchmarks/peak.cpp, which the machine's
compiler builds on first use.

A limit of one moment says little on a machine that others use, too: `Peaks.rate` takes a few
milliseconds, to be called right before and after what is compared with it.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path


class Peaks:
    """Limits of some threads together."""

    def __init__(self, num_threads: int) -> None:
        self._library = _library()
        self._num_threads = num_threads

    def rate(self, name: str) -> float:
        """1e9 operations (a multiply-add is two) per second of one short run; 0 if the CPU does not
        have the instruction.

        Args:
            name: int8_gops, bf16_gops, f32_gops, tile_int8_gops or tile_bf16_gops.
        """
        rate: float = self._library.peak_rate(name.encode(), self._num_threads)
        return rate


@functools.cache
def _library() -> ctypes.CDLL:
    source = Path(__file__).with_name("peak.cpp")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "peak.so"
        options = ["-std=c++20", "-O2", "-march=native", "-pthread", "-Wno-uninitialized"]
        command = ["c++", *options, "-shared", "-fPIC", str(source), "-o", str(made)]
        subprocess.run(command, check=True)
        library = ctypes.CDLL(str(made))
    library.peak_rate.restype = ctypes.c_double
    library.peak_rate.argtypes = [ctypes.c_char_p, ctypes.c_int]
    return library
