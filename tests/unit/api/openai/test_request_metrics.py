"""How long a reply took, from the times of its only output."""

from __future__ import annotations

import pytest

from octavo.api.openai.protocol import RequestMetrics as Told
from octavo.api.openai.request_metrics import request_metrics
from octavo.outputs import RequestMetrics


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (RequestMetrics(), Told()),
        (RequestMetrics(queued_s=1.0, scheduled_s=1.25), Told(queue_time_ms=250.0)),
        (
            RequestMetrics(0, 1.0, 1.5, 2.0, 3.0, num_generation_tokens=5),
            Told(500.0, 1000.0, 500.0, 250.0, 5 / 1.5),
        ),
        (RequestMetrics(0, 1.0, 1.5, 2.0, 2.0, 1), Told(500.0, 0.0, 500.0, None, 2.0)),
        (
            RequestMetrics(first_token_s=2.0, last_token_s=3.0, num_generation_tokens=3),
            Told(None, 1000.0, None, 500.0),
        ),
        (RequestMetrics(0, 1.0, 2.0, 2.0, 2.0, 1), Told(0.0, 0.0, 1000.0)),
    ],
)
def test_times(times: RequestMetrics, told: Told) -> None:
    assert request_metrics(times) == told
