"""`/metrics` after a fixed sequence of requests equals a committed file: names, types, help, labels
and bucket bounds; and its numbers agree with the answers.

Values stand as N, except those of bounds. Rewrite the file with
`python -m tests.integration.test_golden_metrics` after a change of what is exported, and read it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.replies import refused, wait_idle
from tests.integration.server import ROOT, Server, Stream, serving

GOLDEN = Path(__file__).resolve().parents[1] / "data/golden/metrics.txt"
DIFFERENCES = ROOT / "docs/differences-from-vllm.md"
#: families of prometheus_client, which differ by its version and Python's
FOREIGN = ("process_", "python_")
#: labels of vllm:cache_config_info that depend on the machine's memory
BY_MACHINE = re.compile(r'((?:num_gpu_blocks|kv_cache_size_tokens)=)"\d+"')

#: What vLLM 0.32 exports and users of one CPU server may have on a dashboard: family without
#: `vllm:` -> type, labels beside `model_name` and `engine`.
VLLM = {
    "num_requests_running": ("gauge", set()),
    "num_requests_waiting": ("gauge", set()),
    "num_requests_waiting_by_reason": ("gauge", {"reason"}),
    "kv_cache_usage_perc": ("gauge", set()),
    "lora_requests_info": (
        "gauge",
        {"max_lora", "waiting_lora_adapters", "running_lora_adapters"},
    ),
    "prefix_cache_queries": ("counter", set()),
    "prefix_cache_hits": ("counter", set()),
    "num_preemptions": ("counter", set()),
    "prompt_tokens": ("counter", set()),
    "prompt_tokens_by_source": ("counter", {"source"}),
    "prompt_tokens_cached": ("counter", set()),
    "generation_tokens": ("counter", set()),
    "request_success": ("counter", {"finished_reason"}),
    "spec_decode_num_drafts": ("counter", set()),
    "spec_decode_num_draft_tokens": ("counter", set()),
    "spec_decode_num_accepted_tokens": ("counter", set()),
    "request_prompt_tokens": ("histogram", set()),
    "request_generation_tokens": ("histogram", set()),
    "request_max_num_generation_tokens": ("histogram", set()),
    "request_params_max_tokens": ("histogram", set()),
    "request_prefill_kv_computed_tokens": ("histogram", set()),
    "iteration_tokens_total": ("histogram", set()),
    "request_params_n": ("histogram", set()),
    "time_to_first_token_seconds": ("histogram", set()),
    "inter_token_latency_seconds": ("histogram", set()),
    "request_time_per_output_token_seconds": ("histogram", set()),
    "e2e_request_latency_seconds": ("histogram", set()),
    "request_queue_time_seconds": ("histogram", set()),
    "request_inference_time_seconds": ("histogram", set()),
    "request_prefill_time_seconds": ("histogram", set()),
    "request_decode_time_seconds": ("histogram", set()),
}
#: Bounds that a dashboard made for vLLM asks for.
VLLM_BOUNDS = {
    "time_to_first_token_seconds": [
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    ],
    "inter_token_latency_seconds": [
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0),
    ],
    "e2e_request_latency_seconds": [
        *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
        *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
    ],
    "request_prompt_tokens": [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000],
    "iteration_tokens_total": [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
    "request_params_n": [1, 2, 5, 10, 20],
}


class Scrapes:
    """Pages of one server: before any request, after answered ones, after an abandoned one too."""

    def __init__(self, server: Server) -> None:
        self.usages: list[dict[str, Any]] = []
        self.first = page(server)
        for fields in (
            {"max_tokens": 5},
            {"max_tokens": 5},  # found in the prefix cache, but for its last block
            {"max_tokens": 3, "n": 2, "temperature": 1.0, "seed": 1},
            {"max_tokens": 12, "stop": "seven"},
        ):
            self.usages.append(server.complete(PROMPT, **fields)["usage"])
        self.usages.append(server.chat("Say hi.", max_tokens=4)["usage"])
        wait_idle(server)
        self.answered = page(server)
        refused(server, "/v1/completions", {"prompt": "a", "temperature": -1})
        server.request("GET", "/nobody/knows/this/path")
        with Stream(
            server, "/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True}
        ) as stream:
            next(stream.events())
        wait_idle(server, 5.0)
        self.last = page(server)
        self.openmetrics = page(server, "application/openmetrics-text; version=1.0.0")


PROMPT = "One, two, three, four, five, six, one, two, three, four, five, six, one, two, three, four"


def page(server: Server, accept: str = "text/plain") -> str:
    """The page, as text."""
    status, headers, body = server.request("GET", "/metrics", headers={"Accept": accept})
    assert status == 200
    assert headers["content-type"].split(";")[0] == accept.split(";")[0]
    return body.decode()


def families(text: str) -> dict[str, Metric]:
    """The page's families by name (a counter's without `_total`)."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def total(text: str, name: str, **labels: str) -> float:
    """Sum of the samples of this name that have these labels."""
    found = [
        sample.value
        for family in families(text).values()
        for sample in family.samples
        if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items()
    ]
    assert found, f"no sample {name} {labels}"
    return sum(found)


def normalised(text: str) -> str:
    """The page without its values."""
    lines = []
    for line in text.splitlines():
        name = line.split()[2] if line.startswith("# ") else line
        if name.startswith(FOREIGN):
            continue
        if not line.startswith("# "):
            line = BY_MACHINE.sub(r'\1"N"', line.rpartition(" ")[0] + " N")
        lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapes]:
    with scraped(tmp_path_factory.mktemp("metrics")) as server:
        yield Scrapes(server)


def scraped(folder: Path) -> AbstractContextManager[Server]:
    """A server for the fixed sequence."""
    return serving(folder / "log", "--enable-prompt-tokens-details")


def test_the_page_equals_the_golden_one(scrapes: Scrapes) -> None:
    assert normalised(scrapes.last).splitlines() == GOLDEN.read_text().splitlines()


def test_what_vllms_dashboards_ask_for_is_there_or_its_absence_is_explained(
    scrapes: Scrapes,
) -> None:
    found = families(scrapes.last)
    explained = DIFFERENCES.read_text()
    for name, (kind, labels) in VLLM.items():
        family = found.get(f"vllm:{name}")
        if family is None:
            assert f"`vllm:{name}" in explained or name.startswith("spec_decode_"), name
            continue
        assert family.type == kind, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {"model_name", "engine"} | labels, name
    assert "`vllm:spec_decode_" in explained
    assert found["vllm:admission_rejections"].samples[0].labels.keys() == {"model_name", "reason"}
    assert found["vllm:cache_config_info"].samples[0].value == 1


def test_vllms_bounds_are_among_ours_and_there_are_finer_ones_below_10_ms(
    scrapes: Scrapes,
) -> None:
    found = families(scrapes.last)
    for name, bounds in VLLM_BOUNDS.items():
        assert set(bounds) <= set(bounds_of(found[f"vllm:{name}"])), name
    for name, family in found.items():
        if name.startswith("vllm:") and name.endswith("_seconds"):
            assert sum(bound < 0.01 for bound in bounds_of(family)) >= 4, name


def bounds_of(family: Metric) -> list[float]:
    """The bounds of a histogram without +Inf, of its first label set, in order."""
    bounds = []
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            if sample.labels["le"] == "+Inf":
                return bounds
            bounds.append(float(sample.labels["le"]))
    raise AssertionError(f"{family.name} has no buckets")


def test_every_family_has_help_and_every_counter_ends_in_total(scrapes: Scrapes) -> None:
    for family in families(scrapes.last).values():
        assert family.documentation, family.name
        if family.type == "counter":
            assert {sample.name for sample in family.samples} == {f"{family.name}_total"}
    assert list(parse_openmetrics(scrapes.openmetrics))  # strict about both


def test_no_counter_and_no_bucket_ever_falls(scrapes: Scrapes) -> None:
    earlier: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for text in (scrapes.first, scrapes.answered, scrapes.last):
        for family in families(text).values():
            if family.type not in ("counter", "histogram"):
                continue
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert sample.value >= earlier.get(key, 0), key
                earlier[key] = sample.value


def test_histograms_are_cumulative_and_end_with_their_count(scrapes: Scrapes) -> None:
    for family in families(scrapes.last).values():
        if family.type != "histogram":
            continue
        last = 0.0
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                assert sample.value >= last, sample
                last = 0.0 if sample.labels["le"] == "+Inf" else sample.value
                count = sample.value
            elif sample.name.endswith("_count"):
                assert sample.value == count, sample


def test_sums_agree_with_the_usage_of_the_answers(scrapes: Scrapes) -> None:
    answered = scrapes.answered
    prompts = sum(usage["prompt_tokens"] for usage in scrapes.usages)
    outputs = sum(usage["completion_tokens"] for usage in scrapes.usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in scrapes.usages)
    num_requests, num_outputs = len(scrapes.usages), len(scrapes.usages) + 1  # one had n=2
    assert cached > 0
    assert total(answered, "generation_tokens_total") == outputs
    assert total(answered, "request_generation_tokens_sum") == outputs
    # the prompt of a request with n outputs counts once, here as there
    assert total(answered, "prompt_tokens_total") == prompts
    assert total(answered, "prompt_tokens_cached_total") == cached
    by_source = "prompt_tokens_by_source_total"
    assert total(answered, by_source, source="local_cache_hit") == cached
    assert total(answered, by_source, source="local_compute") == prompts - cached
    assert total(answered, "prefix_cache_hits_total") >= cached
    assert total(answered, "request_success_total") == num_outputs
    assert total(answered, "request_success_total", finished_reason="stop") >= 1
    assert total(answered, "request_params_n_count") == num_requests
    assert total(answered, "request_params_n_sum") == num_outputs
    for name in (
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        "request_prompt_tokens",
        "request_queue_time_seconds",
    ):
        assert total(answered, f"{name}_count") == num_outputs, name
    assert total(answered, "inter_token_latency_seconds_count") == outputs - num_outputs


def test_an_abandoned_request_is_counted_as_aborted(scrapes: Scrapes) -> None:
    assert total(scrapes.answered, "request_success_total", finished_reason="abort") == 0
    assert total(scrapes.last, "request_success_total", finished_reason="abort") == 1


def test_a_path_that_nobody_knows_is_no_series_of_its_own(scrapes: Scrapes) -> None:
    assert "nobody" not in scrapes.last


def write() -> None:
    """Writes the golden page anew."""
    with tempfile.TemporaryDirectory() as folder, scraped(Path(folder)) as server:
        GOLDEN.write_text(normalised(Scrapes(server).last))


if __name__ == "__main__":
    sys.exit(write())
