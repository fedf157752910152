"""SIGTERM and SIGINT while the process starts: an orderly end, at any moment.

A handler in Python runs between two instructions of the main thread: inside an import it would
raise at a random place, inside a long native call it would wait. So the kernel's handler only
writes the number to a socket, and a thread whose one job this is reads it and ends the process.
Once an event loop handles the signals itself, `release` ends the thread.

Runs in: API process, a thread of its own. Owns: the signals until `release`.
Knows nothing of: what is being started.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

from octavo.transport.process_name import name_thread

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StartSignals:
    """Takes the signals over; make it on the main thread, before anything slow.

    The process ends with 128 + the signal's number, as a shell would say of one that was killed.
    """

    def __init__(self) -> None:
        self._cleanup: Callable[[], None] = lambda: None
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _leave_to_thread)
        self._thread = threading.Thread(target=self._watch, name="octavo-signals", daemon=True)
        self._thread.start()

    def on_stop(self, cleanup: Callable[[], None]) -> None:
        """Sets what is done before the process ends; called on the signal thread."""
        self._cleanup = cleanup

    def release(self) -> None:
        """Ends the thread: an event loop has the signals now.

        The sockets stay: the loop gives the signals back to them when it stops.
        """
        self._writer.send(b"\0")
        self._thread.join()

    def _watch(self) -> None:
        name_thread("octavo-signals")
        numbers = self._reader.recv(1)
        if numbers == b"\0":
            return
        name = signal.Signals(numbers[0]).name
        logger.info("Received %s while starting: ending.", name)
        try:
            self._cleanup()
        finally:
            os._exit(128 + numbers[0])


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Python wants a handler, or the kernel would end the process."""
