"""Keys, TLS files, sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.config.rules.access import (
    check_tls,
    check_uds,
    choose_api_keys,
    exposure_warning,
)
from octavo.errors import ConfigError


def test_keys_of_the_flag_come_before_the_variable() -> None:
    assert choose_api_keys(["a", "b"], "c") == ["a", "b"]
    assert choose_api_keys(None, "c") == ["c"]
    assert choose_api_keys(None, None) == []


def test_empty_keys_do_not_count() -> None:
    assert choose_api_keys(["", "a"], None) == ["a"]
    assert choose_api_keys(None, "") == []


def tls(**files: Any) -> None:
    check_tls(
        **{
            "ssl_keyfile": None,
            "ssl_certfile": None,
            "ssl_ca_certs": None,
            "ssl_cert_reqs": 0,
            **files,
        }
    )


def test_tls_files_are_checked(tmp_path: Path) -> None:
    key, cert, ca = (str(tmp_path / name) for name in ("key", "cert", "ca"))
    for path in (key, cert, ca):
        Path(path).write_text("x")
    tls()
    tls(ssl_certfile=cert)
    tls(ssl_keyfile=key, ssl_certfile=cert, ssl_ca_certs=ca, ssl_cert_reqs=2)
    with pytest.raises(ConfigError, match="--ssl-keyfile needs --ssl-certfile"):
        tls(ssl_keyfile=key)
    with pytest.raises(ConfigError, match="--ssl-ca-certs needs --ssl-certfile"):
        tls(ssl_ca_certs=ca)
    with pytest.raises(ConfigError, match="--ssl-cert-reqs 2 needs --ssl-ca-certs"):
        tls(ssl_keyfile=key, ssl_certfile=cert, ssl_cert_reqs=2)
    with pytest.raises(ConfigError, match=r"--ssl-certfile .*none cannot be read: No such file"):
        tls(ssl_certfile=str(tmp_path / "none"))


def test_a_socket_needs_a_folder_and_a_short_path(tmp_path: Path) -> None:
    check_uds(None)
    check_uds("o.sock")
    check_uds(str(tmp_path / "o.sock"))
    with pytest.raises(ConfigError, match="the folder does not exist"):
        check_uds(str(tmp_path / "none" / "o.sock"))
    with pytest.raises(ConfigError, match="longer than 107 bytes"):
        check_uds("/tmp/" + "x" * 103)


@pytest.mark.parametrize("host", [None, "", "0.0.0.0", "::"])
def test_all_interfaces_without_a_key_are_mentioned(host: str | None) -> None:
    assert "listening on all interfaces without a key" in exposure_warning(host, None, [])


def test_a_key_loopback_or_unix_socket_is_no_exposure() -> None:
    assert exposure_warning(None, None, ["k"]) == ""
    assert exposure_warning(None, "/tmp/s", []) == ""
    for host in ("127.0.0.1", "localhost", "::1"):
        assert exposure_warning(host, None, []) == ""
    assert "10.0.0.1" in exposure_warning("10.0.0.1", None, [])
