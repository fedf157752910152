"""Who may use the server: keys, TLS files, socket.

Runs in: the API process. Knows nothing of: HTTP.
"""

from __future__ import annotations

import os

from octavo.errors import ConfigError

MAX_UDS_BYTES = 107  # sockaddr_un.sun_path less its zero byte
_LOOPBACK = ("127.", "localhost", "::1")


def choose_api_keys(flag: list[str] | None, variable: str | None) -> list[str]:
    """Keys of the flag, else of the variable; empty ones do not count."""
    return [key for key in (flag or [variable or ""]) if key]


def check_tls(
    *, ssl_keyfile: str | None, ssl_certfile: str | None, ssl_ca_certs: str | None,
    ssl_cert_reqs: int,
) -> None:  # fmt: skip
    """TLS needs both files, and client certificates need something to check them against.

    Raises:
        ConfigError: one is missing or cannot be read.
    """
    for flag, path in (
        ("ssl-keyfile", ssl_keyfile),
        ("ssl-certfile", ssl_certfile),
        ("ssl-ca-certs", ssl_ca_certs),
    ):
        if path is None:
            continue
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"--{flag} {path} cannot be read: {error.strerror}") from None
    if ssl_keyfile and not ssl_certfile:
        raise ConfigError("--ssl-keyfile needs --ssl-certfile")
    if ssl_ca_certs and not ssl_certfile:
        raise ConfigError("--ssl-ca-certs needs --ssl-certfile and --ssl-keyfile")
    if ssl_cert_reqs and not ssl_ca_certs:
        raise ConfigError(
            f"--ssl-cert-reqs {ssl_cert_reqs} needs --ssl-ca-certs to check client certificates "
            "against"
        )


def check_uds(path: str | None) -> None:
    """A Unix socket needs a folder and a short path.

    Raises:
        ConfigError: the folder does not exist or the path is too long.
    """
    if path is None:
        return
    if len(os.fsencode(path)) > MAX_UDS_BYTES:
        raise ConfigError(f"--uds {path} is longer than {MAX_UDS_BYTES} bytes")
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise ConfigError(f"--uds {path}: the folder does not exist")


def exposure_warning(host: str | None, uds: str | None, api_keys: list[str]) -> str:
    """A sentence if everybody who can reach this machine can use the server, else empty."""
    if uds or api_keys or (host or "").startswith(_LOOPBACK):
        return ""
    where = "all interfaces" if host in (None, "", "0.0.0.0", "::") else host
    return (
        f"listening on {where} without a key: whoever reaches this machine can use the model "
        "(--api-key KEY, or --host 127.0.0.1)"
    )
