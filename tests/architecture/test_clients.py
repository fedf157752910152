"""docs/clients.md shows every client of `make test-clients`, in the version that is pinned."""

from __future__ import annotations

import re

import pytest

from tests.clients.catalogue import CLIENTS, FOLDER, ROOT, SERVERS, Client

PAGE = (ROOT / "docs" / "clients.md").read_text()
#: `name[extra]==1.2` of pip, `"name": "1.2"` of npm
PIN = re.compile(r'([@\w/-]+)(?:\[\w+\])?(?:==|": ")([\w.]+)')
#: what a check proves, where it is no template
CHECK = re.compile(r'^@?check\(\s*"([^"]+)"', re.M)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_on_the_page_as_it_is_pinned_and_with_all_its_checks(client: Client) -> None:
    pinned = dict(PIN.findall(client.requirements.read_text()))
    assert client.packages[0] in pinned
    for script, servers in client.scripts:
        assert (FOLDER / "scripts" / script).is_file()
        assert set(servers) <= {server.name for server in SERVERS}
    sentences = {
        sentence
        for script, _ in client.scripts
        for sentence in CHECK.findall((FOLDER / "scripts" / script).read_text())
    }
    assert sentences
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {client.title} |"))
    for package in set(client.packages) & set(pinned):
        assert f"{package} {pinned[package]}" in row
    for sentence in sentences:
        assert sentence in row
