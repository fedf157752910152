"""The access log: uvicorn's lines, without the probes that would drown the rest.

Runs in: API process. Owns: which paths are left out. Knows nothing of: routes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from octavo.api.health import PROBES

#: answered too often to be news
QUIET_PATHS = PROBES


class QuietPaths(logging.Filter):
    """Drops uvicorn's access records of some paths."""

    def __init__(self, paths: Collection[str]) -> None:
        super().__init__()
        self._paths = frozenset(paths)

    def filter(self, record: logging.LogRecord) -> bool:
        """uvicorn's arguments are (client, method, path with query, HTTP version, status)."""
        if isinstance(record.args, tuple) and len(record.args) == 5:
            return str(record.args[2]).partition("?")[0] not in self._paths
        return True


def configure_access_log(*, enabled: bool, quiet_paths: Collection[str]) -> None:
    """Sets up `uvicorn.access`; `quiet_paths` are left out in addition to the probes."""
    logger = logging.getLogger("uvicorn.access")
    logger.disabled = not enabled
    for old in [f for f in logger.filters if isinstance(f, QuietPaths)]:
        logger.removeFilter(old)
    logger.addFilter(QuietPaths(QUIET_PATHS.union(quiet_paths)))
