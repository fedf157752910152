"""docs/differences-from-vllm.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from octavo.cli.bench_serve.flags import make_parser
from octavo.config.args import EngineArgs
from octavo.config.facts import CheckpointFacts, DeviceFacts
from octavo.config.flags import own
from octavo.config.flags.table import BY_NAME
from octavo.config.resolve import resolve_engine
from octavo.envs import read_environ

PAGE = Path(__file__).resolve().parents[2] / "docs/differences-from-vllm.md"
TEXT = PAGE.read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| What "))
]
#: rows about one flag whose Octavo column begins with its default
DEFAULTS = {
    flag[1]: default[1]
    for what, _, octavo, _ in ROWS
    if (flag := re.match(r"`--([\w-]+)`", what))
    and (default := re.match(r"`([^`-][^`]*)`", octavo))
}


def effective_defaults() -> dict[str, object]:
    """What each flag means when it is not given, with choices of `resolve_engine` filled in."""
    checkpoint = CheckpointFacts(
        path="m.gguf",
        format="gguf",
        architecture="LlamaForCausalLM",
        hf_config={},
        vocab_size=10,
        max_position_embeddings=8192,
    )
    device = DeviceFacts(
        isa="avx2",
        cpu_name="test",
        num_physical_cores=2,
        num_logical_cpus=2,
        cpu_affinity=[0, 1],
        memory_limit_bytes=2**33,
        memory_available_bytes=2**33,
    )
    config = resolve_engine(EngineArgs(), read_environ({}), checkpoint, device)
    return {
        **{name: flag.default for name, flag in BY_NAME.items()},
        "max-num-batched-tokens": config.scheduler.max_num_batched_tokens,
        "max-num-seqs": config.scheduler.max_num_seqs,
        "distributed-executor-backend": config.parallel.distributed_executor_backend,
    }


def test_every_row_says_what_vllm_octavo_and_why() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        assert len(row) == 4, row
        assert all(row[:3]), row


def test_every_flag_on_the_page_exists() -> None:
    names = set(re.findall(r"`--([\w-]+)", TEXT)) - {"x", "help"}
    of_commands = {name.removeprefix("--") for name in make_parser().flag_names()}
    assert {name for name in names if name not in BY_NAME} - of_commands == set()


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_default_on_the_page_is_the_codes(name: str) -> None:
    assert DEFAULTS[name] == str(effective_defaults()[name])


def test_the_known_differing_defaults_are_on_the_page() -> None:
    assert {
        "block-size",
        "gpu-memory-utilization",
        "max-num-batched-tokens",
        "distributed-executor-backend",
        "shutdown-timeout",
    } <= set(DEFAULTS)


def test_every_flag_that_only_octavo_has_is_on_the_page() -> None:
    assert {flag.name for flag in own.FLAGS} <= set(DEFAULTS)
