"""The environments of the clients: one folder each under `.cache/clients`, made once.

Runs in: the runner of `make test-clients`. Owns: when an environment is made anew.
Knows nothing of: scripts and servers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.clients.catalogue import ROOT, Client

CACHE = ROOT / ".cache" / "clients"
NICE = ("nice", "-n", "10")


class Environment:
    """Where a client is installed.

    Args:
        client: whose.
        existing: a virtual environment to use as it is.
    """

    def __init__(self, client: Client, existing: Path | None = None) -> None:
        self.client = client
        self.folder = CACHE / client.name
        if existing is None and client.existing is not None and (ROOT / client.existing).exists():
            existing = ROOT / client.existing
        self._existing = existing

    @property
    def venv(self) -> Path:
        return self._existing or self.folder / "venv"

    @property
    def python(self) -> Path:
        """The interpreter of a Python client."""
        return self.venv / "bin" / "python"

    def make(self) -> None:
        """Makes it, unless it is there and made of the same requirements.

        Raises:
            subprocess.CalledProcessError: a package manager failed; it has said why.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp, wanted = self.folder / "made-of", self.client.requirements.read_text()
        if self._existing is not None or (stamp.exists() and stamp.read_text() == wanted):
            return
        stamp.unlink(missing_ok=True)
        print(f"{self.client.name}: installing {' '.join(wanted.split())[:100]}", flush=True)
        if self.client.language == "node":
            shutil.copy(self.client.requirements, self.folder / "package.json")
            install = ("npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
            subprocess.run((*NICE, *install), cwd=self.folder, check=True)
        else:
            make = ROOT / "scripts" / "make-venv.sh"
            subprocess.run(("sh", str(make), str(self.venv)), cwd=ROOT, check=True)
            pip = (*NICE, str(self.python), "-m", "pip", "--quiet", "--require-virtualenv")
            subprocess.run(
                (*pip, "install", "--requirement", str(self.client.requirements)), check=True
            )
            if self.client.without:
                subprocess.run((*pip, "uninstall", "--yes", *self.client.without), check=True)
        stamp.write_text(wanted)

    def versions(self) -> dict[str, str]:
        """Versions of the packages the table names."""
        names = self.client.packages
        if self.client.language == "node":
            packages = self.folder / "node_modules"
            return {n: json.loads((packages / n / "package.json").read_text())["version"]
                    for n in names}  # fmt: skip
        ask = (
            "import importlib.metadata, json, sys;"
            "print(json.dumps({n: importlib.metadata.version(n) for n in sys.argv[1:]}))"
        )
        answer = subprocess.run(
            (str(self.python), "-c", ask, *names), check=True, capture_output=True, text=True
        )
        found: dict[str, str] = json.loads(answer.stdout)
        return found

    def command(self, script: Path, work: Path) -> list[str]:
        """How a script is started; JavaScript is copied to where its packages are found."""
        if self.client.language == "python":
            return [str(self.python), str(script)]
        if self.client.language == "octavo":
            return [sys.executable, str(script)]
        for file in script.parent.glob("*.mjs"):
            shutil.copy(file, self.folder / file.name)
        return ["node", str(self.folder / script.name)]
