"""The `/metrics` page.

Neighbours: `octavo/metrics/engine_metrics.py` and `octavo/metrics/http_metrics.py` (the numbers),
`octavo/metrics/totals_collector.py` (names and labels), `octavo/api` (serves the page).
Runs in: API process. Owns: the registry. Knows nothing of: sockets, routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from octavo.config.engine import CacheConfig
from octavo.messages.engine import Ready
from octavo.metrics.engine_metrics import EngineMetrics
from octavo.metrics.http_metrics import HttpMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Prometheus:
    """Renders the page.

    Args:
        model_name: label `model_name` (the first served name).
        engine: the engine's totals.
        http: the HTTP side's totals.
        num_rejected: reason -> requests refused by a queue limit; read at each scrape.
        engine_index: label `engine`.
    """

    def __init__(
        self,
        model_name: str,
        engine: EngineMetrics,
        http: HttpMetrics,
        num_rejected: Mapping[str, int],
        *,
        engine_index: int = 0,
    ) -> None:
        self._labels = (model_name, str(engine_index))
        self.engine = engine
        self.http = http
        self._num_rejected = num_rejected
        self._cache_info: dict[str, str] = {}
        self._registry: CollectorRegistry | None = None

    def set_cache_info(self, cache: CacheConfig, ready: Ready) -> None:
        """Fills `vllm:cache_config_info` with what the ready core said."""
        info = {**msgspec.to_builtins(cache), "block_size": ready.block_size}
        del info["prefix_hash_seed"]  # may be meant to be known to few
        info["num_gpu_blocks"] = ready.num_blocks
        info["kv_cache_size_tokens"] = ready.kv_cache_size_tokens
        self._cache_info.update({name: str(value) for name, value in info.items()})

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type, in the format the `Accept` header asks for."""
        # On the first scrape, not at start: prometheus_client takes tens of milliseconds to import.
        from octavo.metrics import totals_collector

        if self._registry is None:
            self._registry = totals_collector.make_registry(
                totals_collector.TotalsCollector(
                    self._labels, self.engine, self.http, self._num_rejected, self._cache_info
                )
            )
        return totals_collector.render(self._registry, accept)
