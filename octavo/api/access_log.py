"""The access log: uvicorn's lines, without the probes that would drown the rest.

Runs in: API process. Owns: which paths are left out. Knows nothing of: routes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from http import HTTPStatus

from octavo.api.health import PROBES

#: answered too often to be news
QUIET_PATHS = PROBES

_PHRASES = {int(status): status.phrase for status in HTTPStatus}


class AccessLines(logging.Filter):
    """Drops uvicorn's access records of some paths and gives the others the status in words, as
    uvicorn's own formatter does: `127.0.0.1:5000 - "GET /v1/models HTTP/1.1" 200 OK`."""

    def __init__(self, quiet_paths: Collection[str]) -> None:
        super().__init__()
        self._quiet_paths = frozenset(quiet_paths)

    def filter(self, record: logging.LogRecord) -> bool:
        """uvicorn's arguments are (client, method, path with query, HTTP version, status)."""
        args = record.args
        if not isinstance(args, tuple) or len(args) != 5:
            return True
        if str(args[2]).partition("?")[0] in self._quiet_paths:
            return False
        if isinstance(args[4], int):
            record.msg = f"{record.msg} %s"
            record.args = (*args, _PHRASES.get(args[4], ""))
        return True


def configure_access_log(*, enabled: bool, quiet_paths: Collection[str]) -> None:
    """Sets up `uvicorn.access`; `quiet_paths` are left out in addition to the probes."""
    logger = logging.getLogger("uvicorn.access")
    logger.disabled = not enabled
    for old in [f for f in logger.filters if isinstance(f, AccessLines)]:
        logger.removeFilter(old)
    logger.addFilter(AccessLines(QUIET_PATHS.union(quiet_paths)))
