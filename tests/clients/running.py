"""Runs one script of one client against a running server, and keeps what it printed.

Runs in: the runner of `make test-clients`. Owns: what a script is given, and the meaning of its
lines. Knows nothing of: how the table is written.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.catalogue import FOLDER, KEY, ROOT, ServerKind
from tests.clients.environments import Environment

#: nothing else of the caller's environment reaches a client: neither keys nor settings
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1",
    "NO_COLOR": "1",
    "AI_SDK_LOG_WARNINGS": "false",
}


@dataclass
class Result:
    """What one client did against one server."""

    client: str
    server: str
    versions: dict[str, str]
    date: str
    checks: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    problem: str | None = None

    @property
    def failed(self) -> list[str]:
        """One sentence per failed check, and one if the script itself failed."""
        failed = [f"{c['check']}: {c['error']}" for c in self.checks if "error" in c]
        return [*failed, self.problem] if self.problem else failed


def run_script(
    environment: Environment, script_name: str, kind: ServerKind, origin: str, model_path: str
) -> Result:
    """Runs a script until it ends or its limit has passed; its output goes to `output.log`."""
    client = environment.client
    work = environment.folder / "work" / f"{Path(script_name).stem}-{kind.name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    target = {
        "origin": origin,
        "model": kind.served_name,
        "key": KEY,
        "server": kind.name,
        "work": str(work),
        "python": str(environment.python),
        "model_path": model_path,
    }
    variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    variables |= {**OFFLINE, "HOME": str(work), "PYTHONPATH": ""}
    if client.language == "octavo":
        variables["PYTHONPATH"] = str(ROOT)
    command = [*environment.command(FOLDER / "scripts" / script_name, work), json.dumps(target)]
    result = Result(client.name, kind.name, environment.versions(), time.strftime("%Y-%m-%d"))
    started_s = time.monotonic()
    with (work / "output.log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=work,
            env=variables,
            text=True,
            start_new_session=True,  # so that what a script has started can be ended with it
        )
        try:
            output, _ = process.communicate(timeout=client.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            result.problem = f"{script_name} did not end within {client.limit_s:.0f} s"
        log.write(output)
    result.seconds = round(time.monotonic() - started_s, 1)
    result.checks = [json.loads(line) for line in output.splitlines() if _is_check(line)]
    if not result.problem and process.returncode not in (0, 1):
        result.problem = f"{script_name} ended with {process.returncode}"
    if not result.problem and (process.returncode == 1) != bool(result.failed):
        result.problem = f"{script_name} failed outside its checks (see {work / 'output.log'})"
    if not result.problem and not result.checks:
        result.problem = f"{script_name} checked nothing against {kind.name}"
    return result


def _is_check(line: str) -> bool:
    return line.startswith('{"check":')


def save(results: list[Result], folder: Path) -> None:
    """Keeps a client's results beside its environment."""
    text = json.dumps([asdict(result) for result in results], indent=1)
    (folder / "results.json").write_text(text + "\n")


def load(folder: Path) -> list[Result]:
    """The kept results; none if the client has not been run."""
    path = folder / "results.json"
    return [Result(**kept) for kept in json.loads(path.read_text())] if path.exists() else []
