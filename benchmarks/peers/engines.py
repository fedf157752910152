"""The other engines: where their programs are looked for, and how each serves a model fairly.

`scripts/build-peers.sh` puts them in `.cache/peers`. An engine that is not there is left out of a
comparison, and said to be.

Fair play: each gets room for 65,536 tokens of KV cache, two threads, and the same file or, for
vLLM, the same weights as bfloat16 safetensors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.scenarios import Contender

ROOT = Path(__file__).resolve().parents[2]
KV_TOKENS = 65_536
#: set for an old numpy by some images: slows what others link against it
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


@dataclass(frozen=True)
class Models:
    """Files of one model: GGUF, and its weights as a folder of bfloat16 safetensors."""

    gguf: Path
    folder: Path | None = None


@dataclass(frozen=True)
class Engines:
    """Where programs are.

    Attributes:
        home: of the engines that `scripts/build-peers.sh` made.
        threads: compute threads of each engine.
    """

    home: Path = field(default=ROOT / ".cache" / "peers")
    threads: int = 2

    def program(self, *parts: str) -> Path | None:
        """A program below `home`; None if it is not there."""
        path = self.home.joinpath(*parts)
        return path if path.exists() else None

    def octavo(self, model: Path, *flags: str, name: str = "octavo") -> Contender:
        """This engine, from this tree."""
        words = [sys.executable, "-m", "octavo", "serve", str(model), "--port", "{port}"]
        words += ["--host", "127.0.0.1", "--served-model-name", "m", *flags]
        return Contender(name, " ".join(words))

    def llama_server(self, model: Path, *, build: str = "llama.cpp") -> Contender | None:
        """llama.cpp's server, 32 slots; `build` names the folder."""
        program = self.program(build, "bin", "llama-server")
        return None if program is None else Contender(build, self._llama(program, model, 32))

    def ik_server(self, model: Path) -> Contender | None:
        """ik_llama.cpp's server, for one stream: it fails under concurrent requests."""
        program = self.program("ik_llama.cpp", "bin", "llama-server")
        if program is None:
            return None
        return Contender("ik_llama.cpp", self._llama(program, model, 1))

    def vllm(self, folder: Path) -> Contender | None:
        """vLLM for CPUs with its best settings."""
        program = self.program("vllm", "bin", "vllm")
        if program is None:
            return None
        words = f"{program} serve {folder} --port {{port}} --host 127.0.0.1"
        words += " --served-model-name m --max-model-len 4096"
        last = self.threads - 1
        environment: Mapping[str, str] = {
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{last}" if last else "0",
            "VLLM_CPU_KVCACHE_SPACE": "4",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        return Contender("vllm", words, environment=tuple(environment.items()))

    def _llama(self, program: Path, model: Path, slots: int) -> str:
        return (
            f"{program} -m {model} --host 127.0.0.1 --port {{port}} -c {KV_TOKENS} -np {slots} "
            f"-t {self.threads}"
        )


def clean_environment() -> None:
    """Drops variables that would slow peers (and numpy) without their asking for it."""
    for name in UNSET:
        os.environ.pop(name, None)
