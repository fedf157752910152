"""`ApiClient`: one caller of an OpenAI-compatible server, blocking, on the standard library.

Every failure is one sentence: a server that is not there, a refusal with the server's own words, a
stream that ends early.

Runs in: the shell's process. Owns: the connection of a call.
Knows nothing of: terminals, what is asked.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import urlsplit

from octavo.errors import CommandFailed, ConfigError
from octavo.wording import printable

CONNECT_TIMEOUT_S = 10.0
_MAX_BODY_SHOWN = 300


class ApiClient:
    """Calls below one base URL, such as http://localhost:8000/v1.

    Args:
        url: the base URL.
        api_key: sent as a bearer token.

    Raises:
        ConfigError: the URL is none.
    """

    def __init__(self, url: str, api_key: str) -> None:
        parts = urlsplit(url)
        try:
            self._port = parts.port
        except ValueError:
            self._port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or self._port == -1:
            raise ConfigError(f"--url must look like http://localhost:8000/v1, got {url!r}")
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname
        self._prefix = parts.path.rstrip("/")
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}

    def first_model(self) -> str:
        """The first name of the server's /models.

        Raises:
            CommandFailed: the call fails, or the server has no model.
        """
        connection, response = self._call("GET", "/models", None)
        try:
            answer = json.loads(response.read())
            name: str = answer["data"][0]["id"]
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from None
        except (ValueError, LookupError, TypeError):
            raise CommandFailed(
                f"{self._url}/models names no model; give one with --model-name"
            ) from None
        finally:
            connection.close()
        return name

    def stream(self, path: str, body: Mapping[str, object]) -> Generator[dict[str, Any]]:
        """The events of a streamed answer; closing the generator early ends the request.

        Raises:
            CommandFailed: the call or the stream fails.
        """
        connection, response = self._call("POST", path, json.dumps(body).encode())
        try:
            while True:
                line = response.readline()
                if not line:
                    raise CommandFailed(f"{self._url} ended the stream before its answer was whole")
                if not line.startswith(b"data:"):
                    continue  # between events, or a comment
                data = line[len(b"data:") :].strip()
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                if "error" in event:
                    raise CommandFailed(f"the server ended the answer: {_message(event)}")
                yield event
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from None
        except ValueError:
            raise CommandFailed(f"{self._url} sent an event that is not JSON") from None
        finally:
            connection.close()

    def _call(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._connect()
        try:
            connection.request(method, self._prefix + path, body, self._headers)
            response = connection.getresponse()
            if response.status == 200:
                return connection, response
            refusal = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._broken(error) from None
        connection.close()
        raise CommandFailed(
            f"{self._url}{path} answered {response.status} {response.reason}: {_words(refusal)}"
            f"{_remedy(response.status)}"
        )

    def _connect(self) -> http.client.HTTPConnection:
        made = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = made(self._host, self._port, timeout=CONNECT_TIMEOUT_S)
        try:
            connection.connect()
        except ssl.SSLError as error:
            raise CommandFailed(f"no secure connection to {self._url}: {error.reason}") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise CommandFailed(
                f"no server answers at {self._url} ({reason}); octavo serve starts one, --url "
                "names another"
            ) from None
        connection.sock.settimeout(None)  # an answer may take as long as it takes
        return connection

    def _broken(self, error: Exception) -> CommandFailed:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return CommandFailed(f"the connection to {self._url} broke: {printable(reason)}")


def _words(body: bytes) -> str:
    """What a refusal says, in whichever shape."""
    try:
        return _message(json.loads(body))
    except ValueError:
        text = body.decode(errors="replace").strip()
        return printable(text, _MAX_BODY_SHOWN) or "no reason given"


def _message(answer: Any) -> str:
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return printable(error if isinstance(error, str) else json.dumps(error), _MAX_BODY_SHOWN)


def _remedy(status: int) -> str:
    if status == 401:
        return " (--api-key or OPENAI_API_KEY gives the key)"
    return ""
