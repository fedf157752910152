"""`octavo bench serve` against a server that answers as the test says: flags, table, file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.bench import bench
from octavo.errors import CommandFailed, ConfigError
from tests.fakes.stub_server import Asked, Reply, StubServer, answering, events, json_reply
from tests.integration.server import free_port

STREAM = events(
    {"choices": [{"text": "a"}]},
    {"choices": [{"text": "b"}]},
    {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}},
)


@pytest.fixture
def prompts(tmp_path: Path) -> list[str]:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    return ["--dataset-name", "custom", "--dataset-path", str(path), "--skip-tokenizer-init"]


def test_the_table_and_the_file_have_vllms_names(
    prompts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(STREAM) as server:
        words = [
            *("serve", "--port", str(server.port), *prompts, "--num-prompts", "3"),
            *("--max-concurrency", "2", "--request-rate", "1000", "--goodput", "e2el:60000"),
            *("--percentile-metrics", "e2el,client_queue_time,e2el_including_client_queue"),
            *("--metric-percentiles", "50,99.9", "--save-result", "--result-dir"),
            *(str(tmp_path / "results"), "--metadata", "version=1", "--label", "mine"),
        ]
        assert bench(words) == 0
    table = capsys.readouterr().out.partition("============ Serving Benchmark Result")[2]
    names = [line.partition(":")[0] for line in table.splitlines()[1:-1]]
    assert names == [
        "Successful requests",
        "Failed requests",
        "Maximum request concurrency",
        "Request rate configured (RPS)",
        "Benchmark duration (s)",
        "Total input tokens",
        "Request throughput (req/s)",
        "Request goodput (req/s)",
        "Peak concurrent requests",
        "----------------End-to-end Latency----------------",
        "Mean E2EL (ms)",
        "Median E2EL (ms)",
        "P50 E2EL (ms)",
        "P99.9 E2EL (ms)",
        "---------------Client-side Queueing---------------",
        "Mean Client Queue Time (ms)",
        "Median Client Queue Time (ms)",
        "P50 Client Queue Time (ms)",
        "P99.9 Client Queue Time (ms)",
        "--------Queue-inclusive End-to-end Latency--------",
        "Mean E2EL incl. Client Queue (ms)",
        "Median E2EL incl. Client Queue (ms)",
        "P50 E2EL incl. Client Queue (ms)",
        "P99.9 E2EL incl. Client Queue (ms)",
    ]
    assert "\nSuccessful requests:                     3         \n" in table
    (path,) = (tmp_path / "results").iterdir()
    assert path.name.startswith("mine-1000.0qps-concurrency2-a-root-")
    figures = json.loads(path.read_text())
    assert figures["backend"] == figures["endpoint_type"] == "openai"
    assert figures["model_id"] == "a-root"
    assert figures["version"] == "1"
    assert figures["request_rate"] == 1000.0
    assert figures["completed"] == 3
    assert figures["total_input_tokens"] == 12
    assert figures["total_output_tokens"] == 6
    assert figures["p99.9_e2el_ms"] >= figures["median_e2el_ms"] > 0
    assert len(figures["latencies"]) == 3
    assert "ttfts" not in figures


def test_details_are_saved_if_asked_for_and_lines_are_appended(
    prompts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "all.json"
    with answering(STREAM) as server:
        words = ["serve", "--port", str(server.port), *prompts, "--num-prompts", "2"]
        for _ in range(2):
            bench([*words, "--append-result", "--save-detailed", "--result-filename", str(path)])
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first["generated_texts"] == second["generated_texts"] == ["ab", "ab"]
    assert first["output_lens"] == [2, 2]
    assert [len(gaps) for gaps in first["itls"]] == [1, 1]


def test_flags_reach_the_requests(prompts: list[str]) -> None:
    def answer(asked: Asked) -> Reply:
        return STREAM

    with StubServer(answer) as server:
        words = [
            *("serve", "--base-url", server.url, *prompts, "--num-prompts", "2", "--model", "m"),
            *("--served-model-name", "served", "--header", "x-team=a=b", "--temperature", "0"),
            *("--top_k", "5", "--ignore-eos", "--extra-body", '{"n": 2}', "--logprobs", "1"),
            *("--custom-output-len", "9", "--num-warmups", "1", "--ready-check-timeout-sec", "5"),
        ]
        assert bench(words) == 0
    assert len(server.asked) == 4
    body = server.asked[-1].json
    assert body | {"prompt": ""} == {
        "model": "served",
        "prompt": "",
        "repetition_penalty": 1.0,
        "max_tokens": 9,
        "logprobs": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "top_k": 5,
        "ignore_eos": True,
        "n": 2,
    }
    assert server.asked[-1].headers["x-team"] == "a=b"


def test_lora_modules_take_turns(prompts: list[str]) -> None:
    with answering(STREAM) as server:
        words = ["serve", "--port", str(server.port), *prompts, "--num-prompts", "4"]
        bench([*words, "--max-concurrency", "1", "--lora-modules", "a", "b", "--lora-assignment",
               "round-robin"])  # fmt: skip
    assert [asked.json["model"] for asked in server.asked[1:]] == ["a", "b", "a", "b"]


def test_chats_are_measured_and_the_key_is_sent(
    prompts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    stream = events({"choices": [{"delta": {"content": "Hi"}}]})
    with answering(stream) as server:
        words = ["serve", "--port", str(server.port), *prompts, "--num-prompts", "1"]
        bench([*words, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
               "--header", "x-secret=hidden"])  # fmt: skip
    assert server.asked[0].headers["authorization"] == "Bearer secret-key"
    assert server.asked[1].path == "/v1/chat/completions"
    out = capsys.readouterr().out
    assert "secret-key" not in out
    assert "hidden" not in out


def test_failed_requests_are_counted_and_shown(
    prompts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(json_reply({"error": {"message": "full"}}, 503)) as server:
        bench(["serve", "--port", str(server.port), *prompts, "--num-prompts", "12"])
    out = capsys.readouterr().out
    assert "Error 9: 503 Service Unavailable: full" in out
    assert "Error 10" not in out
    assert "Failed requests:                         12 " in out


def test_probes_run_beside_the_requests(
    prompts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.json"
    with answering(STREAM) as server:
        words = ["serve", "--port", str(server.port), *prompts, "--num-prompts", "5"]
        bench([*words, "--request-rate", "50", "--probe-request-rate", "100", "--save-result",
               "--result-filename", str(path)])  # fmt: skip
    assert "---Probe Requests---" in capsys.readouterr().out
    assert json.loads(path.read_text())["probe_completed"] >= 2


def test_a_ramp_is_recorded(prompts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with answering(STREAM) as server:
        words = ["serve", "--port", str(server.port), *prompts, "--num-prompts", "4"]
        ends = ["--ramp-up-start-rps", "100", "--ramp-up-end-rps", "103"]
        bench([*words, "--ramp-up-strategy", "linear", *ends, "--save-result",
               "--result-filename", str(path)])  # fmt: skip
    changes = json.loads(path.read_text())["rps_change_events"]
    assert [change["rps"] for change in changes] == [100, 101, 102, 103]


def test_the_profiler_is_called_around_the_run(
    prompts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(asked: Asked) -> Reply:
        if asked.path == "/start_profile":
            return Reply()
        return Reply(404) if asked.path == "/stop_profile" else STREAM

    with StubServer(answer) as server:
        bench(["serve", "--base-url", server.url, "--model", "m", *prompts, "--num-prompts", "1",
               "--profile"])  # fmt: skip
    assert [asked.path for asked in server.asked] == [
        *("/start_profile", "/v1/completions", "/stop_profile"),
    ]
    out = capsys.readouterr().out
    assert "Profiler started" in out
    assert "/stop_profile answered 404" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--backend", "vllm-rerank"], "vllm-rerank is not supported; there are openai, vllm"),
        (["--backend", "tgi"], "tgi does not exist"),
        (["--dataset-name", "hf"], "hf is not supported; there are random"),
        (["--hf-split", "x"], "--hf-split is not supported: data sets are not downloaded"),
        (["--plot-timeline"], "--plot-timeline is not supported: nothing is drawn"),
        (["--backend", "openai-chat"], "needs an --endpoint such as /v1/chat/completions"),
        (["--endpoint", "/v1/chat/completions"], "needs an --endpoint such as /v1/completions"),
        (["--max-concurrency", "0"], "--max-concurrency must be above 0, got 0"),
        (["--request-rate", "-1"], "--request-rate must be above 0"),
        (["--percentile-metrics", "ttft,tpop"], "there is no tpop; there are ttft"),
        (["--goodput", "itl:3"], "--goodput takes METRIC:MILLISECONDS with ttft, tpot, e2el"),
        (["--goodput", "ttft"], "got 'ttft'"),
        (["--metadata", "x"], "takes KEY=VALUE, got 'x'"),
        (["--random-range-ratio", "1"], r"must be in \[0, 1\)"),
        (["--metric-percentiles", "50,101"], r"must be numbers in \[0, 100\]"),
        (["--extra-body", "[1]"], "must be a JSON object"),
        (["--ramp-up-strategy", "linear"], "needs --ramp-up-start-rps and --ramp-up-end-rps"),
        (["--num-prompt", "3"], "unknown flag --num-prompt; did you mean --num-prompts"),
        (["--base-url", "localhost:8000"], "must look like http://host:8000"),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        bench(["serve", *words])
    assert "\n" not in caught.value.message


def test_flags_without_effect_warn(prompts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with answering(STREAM) as server:
        words = ["--trust-remote-code", "--num-prompts", "1", *prompts]
        bench(["serve", "--port", str(server.port), *words])
    assert "--trust-remote-code has no effect: code of model" in capsys.readouterr().err


def test_a_server_that_is_not_there_or_refuses_is_told(prompts: list[str]) -> None:
    with pytest.raises(CommandFailed, match=r"no server answers at http://127.0.0.1:\d+ "):
        bench(["serve", "--port", str(free_port()), *prompts])
    for reply, says in (
        (Reply(401), r"/v1/models answered 401 \(OPENAI_API_KEY"),
        (json_reply({"data": []}), "names no model; give one with --model"),
    ):
        with (
            answering(STREAM, models=reply) as server,
            pytest.raises(CommandFailed, match=says),
        ):
            bench(["serve", "--port", str(server.port), *prompts])


def test_a_server_that_does_not_become_ready_is_told(prompts: list[str]) -> None:
    with (
        answering(Reply(503)) as server,
        pytest.raises(CommandFailed, match=r"within 1 s \(--ready-check-timeout-sec\): 503"),
    ):
        bench(["serve", "--port", str(server.port), *prompts, "--ready-check-timeout-sec", "1"])


def test_a_tokenizer_that_is_not_there_is_told() -> None:
    with (
        answering(STREAM) as server,
        pytest.raises(ConfigError, match=r"tokenizer /nowhere cannot .* --skip-tokenizer-init"),
    ):
        bench(["serve", "--port", str(server.port), "--tokenizer", "/nowhere"])


def test_results_that_cannot_be_written_are_told(prompts: list[str], tmp_path: Path) -> None:
    with answering(STREAM) as server, pytest.raises(CommandFailed, match="Is a directory"):
        bench(["serve", "--port", str(server.port), *prompts, "--num-prompts", "1",
               "--save-result", "--result-filename", str(tmp_path)])  # fmt: skip


def test_prompts_are_cut_where_the_servers_tokenizer_differs(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server makes two tokens of each character; every second one is a character."""
    sent: list[Any] = []

    def answer(asked: Asked) -> Reply:
        if asked.path == "/tokenize":
            text = asked.json["prompt"]
            return json_reply({"tokens": [ord(c) for c in text for _ in "ab"]})
        if asked.path == "/detokenize":
            return json_reply({"prompt": "".join(map(chr, asked.json["tokens"][::2]))})
        sent.append(asked.json["prompt"])
        return STREAM

    with StubServer(answer) as server:
        bench(["serve", "--base-url", server.url, "--model", "m", "--tokenizer", model,
               "--num-prompts", "2", "--input-len", "8"])  # fmt: skip
    assert "WARNING: tokenizer mismatch" in capsys.readouterr().out
    assert {len(prompt) for prompt in sent} <= {4, 5}  # halves of 8 or 9 tokens
