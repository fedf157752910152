from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.api.listener import address, bind, tls_context
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError, StartupError


def test_port_zero_is_any_free_port_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with bind(ServerConfig(host="127.0.0.1", port=0)) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert f"http://127.0.0.1:{port}" in caplog.text
        assert address(listener, is_tls=True) == f"https://127.0.0.1:{port}"
        assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_no_host_is_all_interfaces() -> None:
    with bind(ServerConfig(port=0)) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


def test_localhost_is_the_ipv4_one() -> None:
    with bind(ServerConfig(host="localhost", port=0)) as listener:
        assert listener.family == socket.AF_INET


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ServerConfig(host="192.0.2.1", port=0), "--host 192.0.2.1"),
        (ServerConfig(host="127.0.0.1", port=70000), "--port 70000"),
        (ServerConfig(host="256.1.1.1", port=0), "--host 256.1.1.1"),
    ],
)
def test_impossible_addresses_name_the_flag(config: ServerConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        bind(config)


def test_a_unix_socket_in_use_is_refused_and_a_file_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    with bind(ServerConfig(uds=path)), pytest.raises(StartupError, match="in use"):
        bind(ServerConfig(uds=path))
    bind(ServerConfig(uds=path)).close()  # nobody listens any more: the file is stale
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(StartupError, match="--uds"):
        bind(ServerConfig(uds=str(file)))
    assert file.read_text() == "precious"


def test_no_certificate_is_no_tls() -> None:
    assert tls_context(ServerConfig()) is None


def test_certificates_that_do_not_work_name_the_flag(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("not a certificate")
    for config, words in (
        (ServerConfig(ssl_keyfile="x"), "--ssl-certfile"),
        (ServerConfig(ssl_certfile="/no/such.pem"), "there is no file /no/such.pem"),
        (ServerConfig(ssl_certfile=str(bad)), "cannot be used"),
    ):
        with pytest.raises(ConfigError, match=words):
            tls_context(config)


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    program = (
        "import resource\n"
        "from octavo.api.listener import bind\n"
        "from octavo.config.server import ServerConfig\n"
        "bind(ServerConfig(host='127.0.0.1', port=0))\n"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    command = f'ulimit -Sn 100; ulimit -Hn 300; exec {sys.executable} -c "{program}"'
    found = subprocess.run(["sh", "-c", command], capture_output=True, check=True, text=True)
    assert found.stdout.split() == ["300", "300"]
