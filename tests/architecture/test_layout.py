"""The rules of ARCHITECTURE.md that import-linter cannot express: homes of heavy libraries, of the
environment, and what package files may hold."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "octavo"
SOURCES = sorted(PACKAGE.rglob("*.py"))

#: library -> the only places (files or folders under octavo/) that may import it
HOMES = {
    "torch": ["ops/torch.py", "ops/torch_cache.py", "distributed/", "platforms/cuda.py"],
    "fastapi": [],
    "starlette": ["api/"],
    "pydantic": [],
    "uvicorn": ["api/"],
    "zmq": ["transport/"],
    "ray": ["executor/ray.py"],
    "ctypes": [
        "ops/abi.py",
        "ops/library.py",
        "ops/plan.py",
        "structured_output/llguidance.py",
        "transport/",
        "platforms/",
    ],
    "jinja2": ["tokenizer/"],
    "tokenizers": ["tokenizer/"],
    "huggingface_hub": ["weights/hub.py"],
    "prometheus_client": ["metrics/"],
    "llguidance": ["structured_output/"],
    "transformers": [],
    "openai": [],
    "xgrammar": [],
}
ENVIRONMENT_HOMES = ["envs.py", "platforms/", "transport/process.py"]


def imports_of(tree: ast.AST) -> set[str]:
    """Top-level names of the libraries a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def is_at_home(path: Path, homes: list[str]) -> bool:
    name = path.relative_to(PACKAGE).as_posix()
    return any(name == home or (home.endswith("/") and name.startswith(home)) for home in homes)


@pytest.mark.parametrize("library", HOMES)
def test_heavy_library_is_imported_only_at_home(library: str) -> None:
    strays = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if library in imports_of(ast.parse(path.read_text()))
        and not is_at_home(path, HOMES[library])
    ]
    assert strays == []


def test_environment_is_read_only_at_home() -> None:
    strays = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if re.search(r"\bos\.(environ|getenv)\b|from os import .*environ", path.read_text())
        and not is_at_home(path, ENVIRONMENT_HOMES)
    ]
    assert strays == []


def test_package_files_hold_only_a_docstring() -> None:
    full = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if path.name == "__init__.py"
        and path.parent != PACKAGE
        and not all(isinstance(n, ast.Expr) for n in ast.parse(path.read_text()).body)
    ]
    assert full == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        p.relative_to(ROOT).as_posix()
        for p in SOURCES
        if not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert silent == []


def test_no_module_is_named_after_nothing() -> None:
    bad = [p.name for p in SOURCES if p.stem in {"utils", "util", "common", "helpers", "misc"}]
    assert bad == []


def test_sources_are_ascii() -> None:
    bad = [p.relative_to(ROOT).as_posix() for p in SOURCES if not p.read_text().isascii()]
    assert bad == []


def test_unit_tests_mirror_the_package() -> None:
    """Each folder of tests/unit has its counterpart in octavo/: a test is where one looks."""
    folders = {
        p.parent.relative_to(ROOT / "tests/unit").as_posix()
        for p in (ROOT / "tests/unit").rglob("test_*.py")
    }
    strays = [f for f in folders if not (PACKAGE / f).is_dir()]
    assert strays == []


#: how many lines the largest files and functions may have; lower it when they shrink
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 100


def test_files_and_functions_stay_small() -> None:
    long: list[str] = []
    for path in SOURCES:
        text = path.read_text()
        if (lines := text.count("\n")) > MAX_FILE_LINES:
            long.append(f"{path.relative_to(ROOT)}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or 0) - node.lineno
                if size > MAX_FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.name}: {size} lines")
    assert long == []
