"""Running totals of the HTTP side, with the names of prometheus-fastapi-instrumentator that vLLM's
dashboards know.

The API calls `observe` once per answered request. Runs in: API process. Owns: the totals since
start. Knows nothing of: Prometheus, frameworks.
"""

from __future__ import annotations

from octavo.metrics.histogram import Histogram

DURATION_S = (0.1, 0.5, 1.0)
DURATION_HIGHR_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
)  # fmt: skip


#: how a reply was asked for, and whether it called a tool, in vLLM's words
_MODES = {False: "non_streaming", True: "streaming"}
_OUTCOMES = {False: "no_tool_call", True: "tool_call"}


class HttpMetrics:
    """Requests by method, route and class of status; their durations; replies that were read for
    tool calls."""

    def __init__(self) -> None:
        #: (method, status class, route) -> requests
        self.num_requests: dict[tuple[str, str, str], int] = {}
        self.duration: dict[tuple[str, str], Histogram] = {}  # by (method, route)
        self.duration_highr = Histogram(DURATION_HIGHR_S)
        #: (mode, outcome) -> choices of chats
        self.num_tool_readings = {
            (mode, outcome): 0 for mode in _MODES.values() for outcome in _OUTCOMES.values()
        }

    def observe_tool_reading(self, is_stream: bool, has_called: bool) -> None:
        """Counts one choice that was read for tool calls."""
        self.num_tool_readings[_MODES[is_stream], _OUTCOMES[has_called]] += 1

    def observe(self, method: str, handler: str, status: str, duration_s: float) -> None:
        """Counts one answered request.

        Args:
            handler: the route's pattern (never a path a client made up: that would be one series
                for each), e.g. `/v1/models/{model_id}`; `none` where no route matched.
            status: class of the status: `2xx`.
        """
        key = (method, status, handler)
        self.num_requests[key] = self.num_requests.get(key, 0) + 1
        by_route = self.duration.get((method, handler))
        if by_route is None:
            by_route = self.duration[method, handler] = Histogram(DURATION_S)
        by_route.observe(duration_s)
        self.duration_highr.observe(duration_s)
