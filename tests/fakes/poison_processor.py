"""A logits processor with everything that foreign code may do wrong; named on command lines.

`vllm_xargs: {"poison": KIND}` is harmless for two tokens, then does what `KIND` says.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octavo.ops.step import Float32Array
from octavo.sample.logits_processor import LogitsProcessor, RequestLogitsProcessor
from octavo.sampling_params import SamplingParams


def _raise(logits: Float32Array) -> Any:
    raise RuntimeError("as asked")


def _memory(logits: Float32Array) -> Any:
    raise MemoryError("as asked")


def _filled(value: float) -> Callable[[Float32Array], Any]:
    def fill(logits: Float32Array) -> None:
        logits.fill(value)

    return fill


def _one_value(value: float) -> Callable[[Float32Array], Any]:
    def set_one(logits: Float32Array) -> None:
        logits[5] = value

    return set_one


def _slow(logits: Float32Array) -> Any:
    threading.Event().wait(0.05)


WRONGS: dict[str, Callable[[Float32Array], Any]] = {
    "raise": _raise,
    "memory": _memory,
    "exit": lambda logits: sys.exit(3),
    "half": lambda logits: logits[::2],
    "one number": lambda logits: np.float32(0),
    "matrix": lambda logits: np.stack([logits, logits]),
    "complex": lambda logits: logits * 1j,
    "text": lambda logits: ["x"] * len(logits),
    "object": lambda logits: object(),
    "NaN": _filled(np.nan),
    "infinity": _filled(np.inf),
    "nothing": _filled(-np.inf),
    "one NaN": _one_value(np.nan),
    "one infinity": _one_value(np.inf),
    "slow": _slow,
}


class Poison(LogitsProcessor):
    """See the module."""

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        kind = (params.extra_args or {}).get("poison")
        if kind == "invalid":
            raise ValueError("poison=invalid is refused")
        if kind == "check-bug":
            raise ZeroDivisionError("as asked")

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        kind = (params.extra_args or {}).get("poison")
        if kind == "new":
            raise RuntimeError("as asked")
        if kind == "new memory":
            raise MemoryError("as asked")
        if kind == "no function":
            return "a text"  # type: ignore[return-value]
        wrong = WRONGS.get(str(kind))
        if wrong is None:
            return None

        def process(output_token_ids: Sequence[int], logits: Float32Array) -> Any:
            return wrong(logits) if len(output_token_ids) >= 2 else None

        return process
