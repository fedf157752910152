"""`make test-clients`: every client in its own environment against running servers.

    python -m tests.clients --only openai3 litellm --server small
    python -m tests.clients --write     # the table of docs/clients.md, from the kept results

Environments are made one at a time, on first use, under `.cache/clients`; a result is kept beside
the environment. Ends with 1 if anything failed.

Runs in: this tree's environment. Owns: the order. Knows nothing of: any client.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.clients.catalogue import CLIENTS, SERVERS, Client, ServerKind
from tests.clients.environments import CACHE, Environment
from tests.clients.report import print_table, write_page
from tests.clients.running import Result, load, run_script, save
from tests.integration.server import serving


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser("make test-clients", description=__doc__.split("\n")[0])
    names, servers = [c.name for c in CLIENTS], [s.name for s in SERVERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CLIENT")
    parser.add_argument("--server", nargs="+", choices=servers, default=servers)
    parser.add_argument(
        "--environment",
        action="append",
        default=[],
        metavar="CLIENT=FOLDER",
        help="use this virtual environment as it is (vllm needs 3 GB otherwise)",
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/clients.md from the kept results and leave"
    )
    parser.add_argument("--list", action="store_true", help="list the clients and leave")
    return parser.parse_args()


def main() -> int:
    """Exit code: 0 if every check of every client passed."""
    args = arguments()
    chosen = [client for client in CLIENTS if client.name in args.only]
    if args.list:
        print(*(f"{client.name:14} {client.title}" for client in chosen), sep="\n")
        return 0
    if args.write:
        write_page({client.name: load(CACHE / client.name) for client in CLIENTS})
        return 0
    existing = dict(pair.split("=", 1) for pair in args.environment)
    environments, results = {}, []
    for client in chosen:
        folder = Path(existing[client.name]) if client.name in existing else None
        environments[client.name] = Environment(client, folder)
        try:
            environments[client.name].make()
        except subprocess.CalledProcessError as error:
            print(f"{client.name}: no environment: {error}", file=sys.stderr)
            return 1
    for kind in SERVERS:
        wanted = [c for c in chosen if _scripts(c, kind)] if kind.name in args.server else []
        if wanted:
            results += _against(kind, [environments[client.name] for client in wanted])
    for client in chosen:
        own = [result for result in results if result.client == client.name]
        fresh = {result.server for result in own}
        folder = environments[client.name].folder
        save([*(r for r in load(folder) if r.server not in fresh), *own], folder)
    print_table(results)
    return 1 if any(result.failed for result in results) or not results else 0


def _scripts(client: Client, kind: ServerKind) -> list[str]:
    return [script for script, servers in client.scripts if kind.name in servers]


def _against(kind: ServerKind, environments: list[Environment]) -> list[Result]:
    """Starts one server and runs all that want it, one after the other."""
    results = []
    log, model = CACHE / f"server-{kind.name}.log", kind.path()
    with serving(log, *kind.arguments(), model=model) as server:
        origin = f"http://127.0.0.1:{server.port}"
        for environment in environments:
            for script in _scripts(environment.client, kind):
                print(f"{environment.client.name}: {script} against {kind.name}", flush=True)
                result = run_script(environment, script, kind, origin, model)
                for failure in result.failed:
                    print(f"  FAILED {failure}", flush=True)
                results.append(result)
    return results


if __name__ == "__main__":
    sys.exit(main())
