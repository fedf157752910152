"""The results of the clients as a table: on the terminal, and in docs/clients.md.

Runs in: the runner of `make test-clients`. Owns: the part of the page between its two marks.
Knows nothing of: how the results came about.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from tests.clients.catalogue import CLIENTS, ROOT, SERVERS, Client
from tests.clients.running import Result

PAGE = ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- written by make test-clients -->\n", "<!-- end -->\n"


def print_table(results: Sequence[Result]) -> None:
    """One line per client and server."""
    print(f"\n{'client':14} {'server':7} {'passed':>7} {'seconds':>8}  versions")
    for result in results:
        num_passed = sum("error" not in one for one in result.checks)
        shown = f"{num_passed}/{len(result.checks)}"
        state = "  FAILED" if result.failed else ""
        print(
            f"{result.client:14} {result.server:7} {shown:>7} {result.seconds:8.1f}  "
            f"{_versions(result)}{state}"
        )


def write_page(results: Mapping[str, Sequence[Result]]) -> None:
    """Writes the table, from whole and passed results of every client only."""
    missing = [
        f"{client.name} against {server}"
        for client in CLIENTS
        for server in sorted({name for _, names in client.scripts for name in names})
        if server not in {r.server for r in results[client.name] if not r.failed}
    ]
    if missing:
        sys.exit(f"docs/clients.md is not written, for these have not passed: {', '.join(missing)}")
    rows = [_row(client, results[client.name]) for client in CLIENTS]
    table = "| client | versions, date | proved |\n|---|---|---|\n" + "".join(rows)
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + table + END + rest.split(END)[1])


def _row(client: Client, results: Sequence[Result]) -> str:
    names = [kind.name for kind in SERVERS]
    sentence_to_servers: dict[str, list[str]] = {}
    for result in sorted(results, key=lambda result: names.index(result.server)):
        for one in result.checks:
            sentence_to_servers.setdefault(one["check"], []).append(result.server)
    proved = [f"{check} ({', '.join(on)})" for check, on in sentence_to_servers.items()]
    date = max(result.date for result in results)
    return f"| {client.title} | {_versions(results[0])}<br>{date} | {'<br>'.join(proved)} |\n"


def _versions(result: Result) -> str:
    return ", ".join(f"{name} {version}" for name, version in result.versions.items())
