"""The grammars of the core.

Neighbours: `octavo/launch/core.py`, `octavo/launch/offline.py` (callers). Runs in: EngineCore, or
the user's process offline. Owns: nothing. Knows nothing of: grammars, the front end.
"""

from __future__ import annotations

from octavo.config.engine import EngineConfig
from octavo.launch.grammar_backend import open_grammar_backend
from octavo.structured_output.manager import StructuredOutputManager
from octavo.structured_output.request_grammars import RequestGrammars


def make_structured_output(config: EngineConfig) -> StructuredOutputManager:
    """The grammars of an engine. Nothing is loaded before a request wants one."""
    # the native sampler, in this process
    asks_matchers = (
        config.device.device == "cpu" and config.parallel.distributed_executor_backend == "uni"
    )
    return RequestGrammars(open_grammar_backend, asks_matchers=asks_matchers)
