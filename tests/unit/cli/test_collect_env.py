"""`octavo collect-env`: a report without secrets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from octavo import __version__
from octavo.cli.collect_env import PACKAGES, collect_env, report
from octavo.config.facts import DeviceFacts
from octavo.errors import ConfigError

FACTS = DeviceFacts(
    isa="avx2",
    cpu_name="A CPU",
    num_physical_cores=4,
    num_logical_cpus=16,
    cpu_affinity=[0, 1, 2, 5, 8, 9],
    cpu_quota=2.5,
    memory_limit_bytes=8 << 30,
    memory_available_bytes=3 << 30,
    num_numa_nodes=2,
)


def value_of(text: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)} *: (.*)$", text, re.MULTILINE)
    assert match is not None, f"no line {name}\n{text}"
    return match[1]


def test_the_machine_is_described() -> None:
    text = report(FACTS)
    assert value_of(text, "Model name") == "A CPU"
    assert value_of(text, "CPUs of this process") == "0-2,5,8-9"
    assert value_of(text, "cgroup quota") == "2.5 CPUs"
    assert value_of(text, "NUMA nodes") == "2"
    assert value_of(text, "Limit (RAM or cgroup)") == "8.00 GiB"
    assert value_of(text, "Available") == "3.00 GiB"
    assert value_of(text, "Best ISA level of this CPU") == "avx2"
    assert value_of(text, "Compute threads").startswith(
        "2 compute threads: 4 physical cores, 6 CPUs allowed"
    )


def test_versions_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect_env([]) == 0
    text = capsys.readouterr().out
    assert value_of(text, "Octavo version") == __version__
    assert re.fullmatch(r"\d+\.\d+.*", value_of(text, "numpy"))
    assert value_of(text, "Level picked")
    banner = "=" * 30
    assert f"{banner}\n         System Info\n{banner}\n" in text


def test_every_dependency_is_among_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    assert names <= set(PACKAGES)


def test_variables_are_told_and_secrets_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_LOGGING_LEVEL", "debug")
    for name in ("OPENAI_API_KEY", "VLLM_API_KEY", "HF_TOKEN", "VLLM_OF_ANOTHER_SECRET"):
        monkeypatch.setenv(name, "a-secret-value")
    monkeypatch.setenv("UNRELATED", "not ours")
    text = report(FACTS)
    assert value_of(text, "OCTAVO_LOGGING_LEVEL") == "debug"
    assert value_of(text, "VLLM_API_KEY") == "(hidden)"
    assert value_of(text, "OPENAI_API_KEY") == "(hidden)"
    assert value_of(text, "VLLM_OF_ANOTHER_SECRET") == "(not read)"
    assert "a-secret-value" not in text
    assert "UNRELATED" not in text


def test_a_wrong_environment_is_reported_and_does_not_end_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OCTAVO_CPU_KVCACHE_SPACE", "much")
    assert "OCTAVO_CPU_KVCACHE_SPACE must be a number" in value_of(report(FACTS), "Compute threads")


def test_it_takes_no_flags() -> None:
    with pytest.raises(ConfigError, match="octavo collect-env: unknown flag --all"):
        collect_env(["--all"])
