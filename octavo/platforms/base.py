"""What every platform must tell: the share of the machine this process may use.

Implemented by: `cpu.py`. Knows nothing of: models, requests, backends.
"""

from __future__ import annotations

from typing import Protocol

from octavo.config.facts import DeviceFacts


class Platform(Protocol):
    """One kind of device."""

    def facts(self) -> DeviceFacts:
        """Measured now: affinity, quota and free memory may change while a process lives."""
        ...
