"""Bucket bounds of the histograms: vLLM's, with finer ones added where a small model is faster.

A dashboard made for vLLM finds each bound it asks for.
Runs in: API process. Knows nothing of: Prometheus.
"""

from __future__ import annotations

_FINE_S = (0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008)

TIME_TO_FIRST_TOKEN_S = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0,
    2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
INTER_TOKEN_LATENCY_S = (
    *_FINE_S, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_LATENCY_S = (
    *_FINE_S, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0,
    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
N_PER_REQUEST = (1, 2, 5, 10, 20)
PREEMPTIONS_PER_REQUEST = (1, 2, 3, 4, 5, 10, 20)


def one_two_five(maximum: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `maximum`."""
    bounds: list[int] = []
    power = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * power > maximum:
                return tuple(bounds)
            bounds.append(mantissa * power)
        power *= 10
