"""`make fuzz-api`: schemathesis over every route of a real server.

    python -m tests.fuzz --minutes 20

Requests are made from `/openapi.json`, those that fit and those that do not. A failure is: a 5xx
other than 503 with `Retry-After`, an answer the document does not describe (status, content type,
headers, body), a request that does not fit and is accepted, no answer within a minute, and a server
that is not idle, healthy and free of unforeseen errors at the end. Ends with 1 if there was one;
schemathesis prints how to send the request again. What is found becomes a test in `tests/api`.

Runs in: this tree's environment; schemathesis in its own, made on first use in `.cache/fuzz`.
Knows nothing of: routes.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.server import ROOT, Server, serving

HERE = Path(__file__).parent
CACHE = ROOT / ".cache" / "fuzz"
#: everything that adds routes and fields; limits that keep an answer within seconds
SERVER_ARGS = (
    "--max-model-len=256",
    "--max-num-queued-reqs=16",
    '--override-generation-config={"max_new_tokens": 8}',
    "--enable-server-load-tracking",
    "--enable-prompt-tokens-details",
    "--enable-request-id-headers",
    "--enable-tokenizer-info-endpoint",
    "--trust-request-chat-template",
    "--enable-auto-tool-choice",
    "--tool-call-parser=hermes",
    "--reasoning-parser=qwen3",
    "--enable-log-requests",
    "--enable-log-outputs",
    "--max-log-len=40",
)
ANSWER_LIMIT_S = 60
IDLE_LIMIT_S = 30.0
#: what the log says of errors that nobody foresaw
UNFORESEEN = (" ERROR ", "A message was dropped")


def environment() -> Path:
    """The folder of schemathesis' commands; made anew when the requirements change."""
    venv, stamp = CACHE / "venv", CACHE / "made-of"
    wanted = (HERE / "requirements.txt").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        CACHE.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        print("Installing schemathesis into", venv, flush=True)
        subprocess.run(("sh", str(ROOT / "scripts/make-venv.sh"), str(venv)), check=True)
        install = (str(venv / "bin/python"), "-m", "pip", "install", "-q", "--require-virtualenv")
        subprocess.run((*install, "-r", str(HERE / "requirements.txt")), check=True)
        stamp.write_text(wanted)
    return venv / "bin"


def attack(server: Server, key: str, seconds: int, more: list[str]) -> int:
    """Runs schemathesis; returns its exit code, 0 if it found nothing."""
    command = (
        str(environment() / "schemathesis"),
        f"--config-file={HERE / 'schemathesis.toml'}",
        "run",
        f"http://127.0.0.1:{server.port}/openapi.json",
        f"--header=Authorization: Bearer {key}",
        f"--request-timeout={ANSWER_LIMIT_S}",
        f"--max-time={seconds}",
        "--workers=1",  # two threads meet a fault of Python 3.11's parser (gh-106905)
        "--continue-on-failure",
        "--generation-database=none",
        *more,
    )
    return subprocess.run(command, cwd=CACHE).returncode


def aftermath(server: Server, key: str) -> list[str]:
    """What is wrong with the server after the attack."""
    wrong = []
    headers = {"Authorization": f"Bearer {key}"}
    if server.process.poll() is not None:
        return [f"the server ended with {server.process.returncode}"]
    deadline = time.monotonic() + IDLE_LIMIT_S
    load = -1
    while load and time.monotonic() < deadline:
        load = json.loads(server.request("GET", "/load", headers=headers)[2])["server_load"]
        server.pause(0.2)
    if load:
        wrong.append(f"{load} requests are left")
    if server.request("GET", "/ready")[0] != 200:
        wrong.append("/ready is not 200")
    if server.post("/v1/completions", {"prompt": "a"}, headers=headers)[0] != 200:
        wrong.append("a plain completion is not answered")
    lines = [line for line in server.log.splitlines() if any(mark in line for mark in UNFORESEEN)]
    wrong += [f"the log says: {line}" for line in lines[:10]]
    return wrong


def main() -> int:
    """Exit code: 0 if nothing was found."""
    parser = argparse.ArgumentParser("make fuzz-api", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    args, more = parser.parse_known_args()
    environment()
    key, log = secrets.token_hex(8), CACHE / "server.log"
    env: dict[str, str | None] = {"OCTAVO_SERVER_DEV_MODE": "1"}
    with serving(log, "--api-key", key, *SERVER_ARGS, env=env) as server:
        failed = attack(server, key, int(args.minutes * 60), more) != 0
        for sentence in (wrong := aftermath(server, key)):
            print("After the attack", sentence)
    print(f"{'Something was' if failed or wrong else 'Nothing was'} found; the server's log: {log}")
    return int(failed or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
