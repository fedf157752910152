"""What is refused before it costs memory."""

from __future__ import annotations

import pytest

from octavo.config.engine import SchedulerConfig
from octavo.errors import InvalidParameter, Overloaded
from octavo.frontend.admission import MAX_PROMPT_TOKENS, MAX_REQS, AdmissionControl


def test_an_operators_limit_counts_each_output() -> None:
    control = AdmissionControl(SchedulerConfig(max_num_queued_reqs=4, max_num_queued_tokens=10))
    control.check_requests(2, 2)
    with pytest.raises(Overloaded, match="max_num_queued_reqs=4"):
        control.check_requests(2, 3)
    control.check_tokens(4, 3, 2)
    with pytest.raises(Overloaded, match="max_num_queued_tokens=10"):
        control.check_tokens(5, 3, 2)
    assert control.num_rejected == {"max_num_queued_reqs": 1, "max_num_queued_tokens": 1}


def test_an_engine_without_backlog_takes_any_prompt() -> None:
    control = AdmissionControl(SchedulerConfig(max_num_queued_tokens=10))
    control.check_tokens(0, 100, 1)


def test_without_limits_the_memory_is_one() -> None:
    control = AdmissionControl(SchedulerConfig())
    control.check_requests(MAX_REQS - 1, 1)
    with pytest.raises(Overloaded):
        control.check_requests(MAX_REQS, 1)
    control.check_tokens(MAX_PROMPT_TOKENS - 8000, 1000, 8)
    with pytest.raises(Overloaded):
        control.check_tokens(MAX_PROMPT_TOKENS - 8000, 1001, 8)


def test_copies_of_a_prompt_that_would_never_fit_are_the_clients_mistake() -> None:
    control = AdmissionControl(SchedulerConfig())
    control.check_tokens(0, 1024, 16384)
    with pytest.raises(InvalidParameter, match="ask for at most 16368") as caught:
        control.check_tokens(0, 1025, 16384)
    assert caught.value.param == "n"
