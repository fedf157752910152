"""The EngineCore process: joins the core with an executor and a worker.

Neighbours: `octavo/launch/serve.py` (starts it), `octavo/launch/executors.py`,
`octavo/core/engine_core_proc.py`.
Runs in: EngineCore. Owns: nothing. Knows nothing of: HTTP, text.
"""

from __future__ import annotations

import sys

import msgspec

from octavo.config.engine import EngineConfig
from octavo.core.engine_core_proc import run_engine_core
from octavo.launch.executors import make_executor
from octavo.launch.kv_events import make_kv_event_publisher
from octavo.log import LogSettings, configure_logging
from octavo.transport.child import child_args


def main() -> None:
    """The child's whole life; does not return."""
    args = child_args()
    settings = msgspec.json.decode(args.options["log"], type=LogSettings)

    def configure(config: EngineConfig) -> None:
        configure_logging(settings, process_name="EngineCore")

    sys.exit(
        run_engine_core(
            args, make_executor, make_kv_events=make_kv_event_publisher, configure=configure
        )
    )
