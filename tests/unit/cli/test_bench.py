"""`octavo bench` over a tiny model on disk: vLLM's flags, lines and JSON keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.cli.bench import bench
from octavo.errors import ConfigError
from tests.fakes.tiny_checkpoint import tiny_gguf

ENGINE = ["--max-model-len", "64", "--num-gpu-blocks-override", "40", "--cpu-threads", "1"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"))


def run(name: str, model: str, folder: Path, *flags: str) -> dict[str, object]:
    path = folder / "figures.json"
    words = [name, "--model", model, *ENGINE, "--output-json", str(path), *flags]
    assert bench(words) == 0
    figures: dict[str, object] = json.loads(path.read_text())
    return figures


def test_latency_measures_the_batch_and_both_of_its_parts(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--input_len=8", "--output-len", "4", "--batch-size", "2"]
    iterations = ["--num-iters", "3", "--num-iters-warmup", "1"]
    figures = run("latency", model, tmp_path, *flags, *iterations)
    latencies = figures["latencies"]
    assert isinstance(latencies, list)
    assert len(latencies) == 3
    assert min(latencies) > 0
    average = figures["avg_latency"]
    assert average == pytest.approx(sum(latencies) / 3)
    assert figures["percentiles"].keys() == {"10", "25", "50", "75", "90", "99"}  # type: ignore[attr-defined]
    # the prompts take a part of the time, so both rates are above those of the whole
    assert isinstance(average, float)
    assert figures["prefill_tokens_per_second"] > 2 * 8 / max(latencies)  # type: ignore[operator]
    assert figures["decode_tokens_per_second"] > 2 * 3 / max(latencies)  # type: ignore[operator]
    assert "Avg latency: " in capsys.readouterr().out


def test_latency_of_a_beam_search(model: str, tmp_path: Path) -> None:
    flags = ["--input-len", "4", "--output-len", "3", "--n", "2", "--use-beam-search"]
    figures = run("latency", model, tmp_path, *flags, "--num-iters", "1", "--num-iters-warmup", "0")
    assert "decode_tokens_per_second" not in figures


@pytest.mark.parametrize("name", ["latency", "throughput"])
def test_a_profile_says_where_the_time_went(
    name: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--num-prompts", "2"] if name == "throughput" else ["--num-iters", "1"]
    warm_up = ["--num-iters-warmup", "0"] if name == "latency" else []
    flags = [*size, *warm_up, "--input-len", "4", "--output-len", "3", "--profile"]
    profile = run(name, model, tmp_path, *flags)["profile"]
    assert isinstance(profile, dict)
    assert profile["num_steps"] >= 3
    times = {op["op"]: op for op in profile["ops"]}
    assert sum(times["LINEAR"]["operations"].values()) > 0
    assert times["ATTENTION"]["bytes"] > 0
    assert "of all threads" in capsys.readouterr().out


def test_throughput_counts_every_token(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--num-prompts", "5", "--prefix-len", "3", "--input-len", "6", "--output-len", "4"]
    figures = run("throughput", model, tmp_path, *flags, "--n", "2")
    assert figures["num_requests"] == 5
    assert figures["total_num_tokens"] == 5 * (3 + 6 + 2 * 4)
    assert "Total num output tokens:  40" in capsys.readouterr().out


def test_throughput_takes_prompts_from_a_file(model: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a b"}\n{"prompt": "abc"}\n')
    flags = ["--dataset-name", "custom", "--dataset-path", str(prompts), "--num-prompts", "3"]
    assert run("throughput", model, tmp_path, *flags, "--output-len", "2")["num_requests"] == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "unknown benchmark 'nothing'"),
        (["latencies"], "octavo bench latency"),
        (["startup"], "phases of its start"),
        (["latency", "--input-len", "many"], "--input-len"),
        (["latency", "--input-lenn", "3"], "--input-lenn"),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        bench(words)


def test_what_does_not_fit_in_the_window_is_said(model: str, tmp_path: Path) -> None:
    for name in ("latency", "throughput"):
        with pytest.raises(ConfigError, match="window has 64"):
            run(name, model, tmp_path, "--input-len", "60", "--output-len", "5")


def test_a_file_without_prompts_is_named(model: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text('{"text": "a"}\n')
    flags = ["--dataset-name", "custom", "--dataset-path", str(path)]
    with pytest.raises(ConfigError, match=r"wrong\.jsonl"):
        run("throughput", model, tmp_path, *flags)


def test_help_lists_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["--help"]) == 0
    said = capsys.readouterr().out
    assert "latency" in said
    assert "throughput" in said
