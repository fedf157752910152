"""The listening socket, made before anything else so that a port in use is found at once.

Runs in: API process, before the event loop. Owns: nothing; the caller closes the socket.
Knows nothing of: HTTP, the engine.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import stat
from typing import TYPE_CHECKING

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError, StartupError

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)

BACKLOG = 2048
#: files and connections this process may have open, if the system allows as many (vLLM's number)
MAX_OPEN_FILES = 65535


def bind(config: ServerConfig) -> socket.socket:
    """Binds and listens: from here on clients are queued, not refused.

    No host means all IPv4 interfaces, as in vLLM; port 0 means any free one, which is logged.

    Raises:
        StartupError: the address is in use or may not be used.
        ConfigError: the host does not exist here.
    """
    _allow_many_connections()
    listener = _bind_uds(config.uds) if config.uds else _bind_tcp(config)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    logger.info("Starting Octavo server on %s", address(listener, is_tls=bool(config.ssl_certfile)))
    return listener


def address(listener: socket.socket, *, is_tls: bool = False) -> str:
    """The listener as a URL."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http{'s' if is_tls else ''}://{shown}:{port}"


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """TLS as the `--ssl-*` flags say; None without a certificate.

    Raises:
        ConfigError: a file is missing or does not fit.
    """
    if not config.ssl_certfile:
        if config.ssl_keyfile:
            raise ConfigError("--ssl-keyfile needs --ssl-certfile; set both or neither.")
        return None
    for flag, path in (
        ("--ssl-certfile", config.ssl_certfile),
        ("--ssl-keyfile", config.ssl_keyfile),
        ("--ssl-ca-certs", config.ssl_ca_certs),
    ):
        if path and not os.path.isfile(path):
            raise ConfigError(f"{flag}: there is no file {path}.")
    import ssl  # here: 10 ms before the core's process is started, which few servers need

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
        if config.ssl_ca_certs:
            context.load_verify_locations(config.ssl_ca_certs)
        context.verify_mode = ssl.VerifyMode(config.ssl_cert_reqs)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"--ssl-certfile {config.ssl_certfile} cannot be used with its key: {error}."
        ) from None
    return context


def _allow_many_connections() -> None:
    """The usual limit of 1,024 open files would turn the next client away without a word."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _bind_tcp(config: ServerConfig) -> socket.socket:
    host = config.host or ""
    if not 0 <= config.port <= 65535:
        raise ConfigError(f"--port {config.port} is not a port: use 0 to 65535.")
    try:
        infos = socket.getaddrinfo(
            host or "0.0.0.0", config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ConfigError(f"--host {host} is not an address of this machine: {error}.") from None
    # localhost names both families; users of it mean 127.0.0.1
    infos.sort(key=lambda info: info[0] != socket.AF_INET)
    family, kind, protocol, _, where = infos[0]
    listener = socket.socket(family, kind, protocol)
    # a restart must not wait for connections of the last run to time out
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
        listener.listen(BACKLOG)  # two binders with SO_REUSEADDR part only here
    except OSError as error:
        listener.close()
        raise _bind_error(error, f"{where[0]}:{config.port}", host, config.port) from None
    return listener


def _bind_error(error: OSError, place: str, host: str, port: int) -> StartupError:
    if error.errno == errno.EADDRINUSE:
        return StartupError(
            f"Port {port} is in use ({place}): another server runs there; stop it or choose "
            "another --port."
        )
    if error.errno == errno.EACCES:
        return StartupError(f"This user may not listen on {place}; choose a --port above 1023.")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"--host {host} is not an address of this machine.")
    return StartupError(f"Cannot listen on {place}: {error.strerror}.")


def _bind_uds(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale_socket(path)
        listener.bind(path)
        os.chmod(path, 0o666)
    except OSError as error:
        listener.close()
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise StartupError(f"Cannot listen on --uds {path}: {reason}.") from None
    return listener


def _remove_stale_socket(path: str) -> None:
    """A socket file that nobody listens on is left over from a server that was killed."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
