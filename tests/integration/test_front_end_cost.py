"""The API process's CPU time per streamed token: an HTTP server with a core that computes nothing.

The bound is several times what an idle machine shows (`python -m benchmarks.front_end`), since
other work makes the same instructions slower; what it finds is a step that became costly.
"""

from __future__ import annotations

import pytest

from benchmarks.front_end import played_server

BOUND_US = 100.0


@pytest.mark.parametrize("case", ["completions", "chat"])
def test_a_streamed_token_costs_the_api_process_little(case: str) -> None:
    with played_server(step_ms=5.0) as server:
        server.cost_us(case, concurrency=8, tokens=8)  # warm
        costs_us = []
        while len(costs_us) < 4 and min(costs_us, default=BOUND_US) >= BOUND_US / 2:
            costs_us.append(server.cost_us(case, concurrency=32, tokens=64))
    assert min(costs_us) < BOUND_US, costs_us
