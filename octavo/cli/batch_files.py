"""The files of a batch: read from a path or URL, written to a path or URL.

Lines go to `OUTPUT.part` as they come; it becomes OUTPUT when the batch is whole, or is uploaded.
A batch that is cut short leaves it for whoever wants what was answered.

Runs in: the shell's process. Owns: the temporary file. Knows nothing of: what lines say.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import BinaryIO
from urllib.parse import urlsplit

from octavo.errors import CommandFailed, ConfigError

DOWNLOAD_TIMEOUT_S = 300.0
UPLOAD_TIMEOUT_S = 1000.0
UPLOAD_ATTEMPTS = 5
UPLOAD_PAUSE_S = 5.0


def read_lines(source: str) -> list[bytes]:
    """The lines of a path or an http(s) URL that are not empty.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        if _is_url(source):
            with urllib.request.urlopen(source, timeout=DOWNLOAD_TIMEOUT_S) as response:
                data = response.read()
        else:
            with open(source, "rb") as file:
                data = file.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise ConfigError(f"--input-file {source}: {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"--input-file {source}: {getattr(reason, 'strerror', reason)}") from None
    return [line for line in data.splitlines() if line.strip()]


class BatchOutputFile:
    """Where lines of output go.

    Args:
        target: a path, something that is no regular file (/dev/stdout), or an http(s) URL.
        tmp_dir: where the lines of a URL wait; None: the system's place.

    Raises:
        ConfigError: nothing can be written there.
    """

    def __init__(
        self,
        target: str,
        tmp_dir: str | None = None,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._target = target
        self._pause = pause
        self.num_lines = 0
        self.is_stream = not _is_url(target) and os.path.exists(target) and not _is_file(target)
        folder = _folder(target, tmp_dir)
        if os.path.isdir(target):
            raise ConfigError(f"--output-file {target} is a directory; name a file in it")
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise ConfigError(f"--output-file {target}: {folder} is no folder that can be written")
        name = f"octavo-batch-{os.getpid()}.jsonl" if _is_url(target) else os.path.basename(target)
        self.path = target if self.is_stream else os.path.join(folder, f"{name}.part")
        self._file: BinaryIO | None = None

    def write(self, line: bytes) -> None:
        """Adds a line, with its line end.

        Raises:
            CommandFailed: it cannot be written.
        """
        try:
            file = self._opened()
            file.write(line)
            file.flush()
        except OSError as error:
            raise CommandFailed(f"--output-file {self.path}: {error.strerror}") from None
        self.num_lines += 1

    def finish(self) -> None:
        """All lines are there: the file gets its name, or is uploaded.

        Raises:
            CommandFailed: that cannot be done; the lines are still in `path`.
        """
        try:
            self._opened().close()
            if _is_url(self._target):
                self._upload()
                os.remove(self.path)
            elif not self.is_stream:
                os.replace(self.path, self._target)
        except OSError as error:
            raise CommandFailed(
                f"--output-file {self._target}: {error.strerror or error}; the lines are in "
                f"{self.path}"
            ) from None

    def give_up(self) -> str:
        """The batch is cut short; returns half a sentence that says where its lines are."""
        if self._file is None:
            return "no line was answered"
        with contextlib.suppress(OSError):
            self._file.close()
        if self.is_stream:
            return f"{self.num_lines} lines were written"
        return f"the first {self.num_lines} lines are in {self.path}"

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = open(self.path, "wb")  # noqa: SIM115  closed by finish and give_up
        return self._file

    def _upload(self) -> None:
        for attempt in range(1, UPLOAD_ATTEMPTS + 1):
            try:
                self._put()
            except (OSError, http.client.HTTPException) as error:
                if attempt == UPLOAD_ATTEMPTS:
                    reason = getattr(error, "strerror", None) or error
                    raise OSError(f"{reason} ({attempt} attempts)") from None
                self._pause(UPLOAD_PAUSE_S)
            else:
                return

    def _put(self) -> None:
        parts = urlsplit(self._target)
        is_tls = parts.scheme == "https"
        made = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
        connection = made(parts.netloc.rpartition("@")[2], timeout=UPLOAD_TIMEOUT_S)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        with contextlib.closing(connection), open(self.path, "rb") as file:
            headers = {"Content-Length": str(os.path.getsize(self.path))}
            connection.request("PUT", path or "/", file, headers)
            response = connection.getresponse()
            if not 200 <= response.status < 300:
                raise OSError(f"PUT answered {response.status} {response.reason}")


def _is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _folder(target: str, tmp_dir: str | None) -> str:
    if _is_url(target):
        return tmp_dir or tempfile.gettempdir()
    return os.path.dirname(target) or "."


def _is_file(path: str) -> bool:
    return os.path.isfile(path) or os.path.isdir(path)
