"""Sampling on the real model, through real processes and through `LLM`."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.errors import GenerationFailed, InvalidParameter
from octavo.sampling_params import BeamSearchParams, RepetitionDetectionParams
from tests.fakes.processors import Favour
from tests.integration.server import Server, serving

PROMPT = "The capital of France is"
FULL_STOP = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log: Path = tmp_path_factory.mktemp("sampling") / "log"
    name = "tests.fakes.processors:Favour"
    with serving(log, "--logits-processors", name, "--logprobs-mode", "processed_logprobs") as made:
        yield made


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(logits_processors=[Favour], logprobs_mode="raw_logits", max_model_len=512) as made:
        yield made


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def complete(server: Server, **fields: Any) -> Answer:
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, **fields}
    status, _, data = server.request("POST", "/v1/completions", body)
    return Answer(status, data)


def text(answer: Answer) -> str:
    said: str = answer.json["choices"][0]["text"]
    return said


def test_a_processor_changes_the_requests_that_ask_for_it(server: Server) -> None:
    assert text(complete(server, vllm_xargs={"favoured_token": FULL_STOP})) == "...."
    assert text(complete(server)).startswith(" Paris")


def test_a_processor_refuses_what_it_cannot_serve(server: Server) -> None:
    answer = complete(server, vllm_xargs={"favoured_token": "dot"})
    assert answer.status == 400
    assert answer.json["error"]["param"] == "vllm_xargs"
    assert "favoured_token must be a token id" in answer.json["error"]["message"]


def test_a_processor_that_fails_ends_its_request_and_no_other(server: Server) -> None:
    failing = {"favoured_token": FULL_STOP, "fails_after": 2}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        broken = [pool.submit(complete, server, vllm_xargs=failing) for _ in range(3)]
        plain = [pool.submit(complete, server, max_tokens=24) for _ in range(3)]
    for future in broken:
        answer = future.result()
        assert answer.status == 500
        assert (
            "a logits processor failed: RuntimeError: as asked" in answer.json["error"]["message"]
        )
    assert {text(future.result()) for future in plain} == {text(complete(server, max_tokens=24))}


def test_c49_tokens_that_were_cut_off_have_finite_logprobs(server: Server) -> None:
    answer = complete(server, temperature=0.5, top_k=1, logprobs=3, seed=1)
    assert b"Infinity" not in answer.body
    assert b"NaN" not in answer.body
    top = answer.json["choices"][0]["logprobs"]["top_logprobs"][0]
    assert sorted(top.values()) == [-9999.0, -9999.0, 0.0]


def test_beams_over_http_are_those_of_the_offline_search(server: Server) -> None:
    fields = {"use_beam_search": True, "n": 3, "max_tokens": 6, "length_penalty": 0.8}
    answer = complete(server, **fields, return_token_ids=True)
    assert answer.status == 200, answer.body
    params = BeamSearchParams(beam_width=3, max_tokens=6, length_penalty=0.8)
    with LLM(max_model_len=512, logprobs_mode="processed_logprobs") as plain:
        (offline,) = plain.beam_search(PROMPT, params)
    choices = answer.json["choices"]
    assert [c["token_ids"] for c in choices] == [o.token_ids for o in offline.outputs]
    assert [c["text"] for c in choices] == [o.text for o in offline.outputs]
    totals = [o.cumulative_logprob for o in offline.outputs]
    assert totals == sorted(totals, reverse=True)
    greedy = complete(server, max_tokens=6)
    assert choices[0]["text"].split()[0] == text(greedy).split()[0]


def test_a_text_that_goes_round_in_circles_is_ended(server: Server) -> None:
    circles = {"vllm_xargs": {"favoured_token": FULL_STOP}, "max_tokens": 40}
    limits = {"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 3}
    choice = complete(server, **circles, repetition_detection=limits).json["choices"][0]
    assert choice["text"] == "." * 6
    assert choice["finish_reason"] == "repetition"
    assert choice["stop_reason"] == "repetition_detected"


# ---- offline


def test_offline_a_processor_may_be_given_as_a_class(llm: LLM) -> None:
    params = SamplingParams(
        temperature=0, max_tokens=3, extra_args={"favoured_token": FULL_STOP}, logprobs=1
    )
    (output,) = llm.generate(PROMPT, params)
    assert output.outputs[0].text == "..."
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None
    # raw logits: of the model, before the processor
    assert 0 < logprobs[0][FULL_STOP].logprob < 100
    with pytest.raises(InvalidParameter, match="favoured_token"):
        llm.generate(PROMPT, SamplingParams(extra_args={"favoured_token": 0.5}))
    broken = SamplingParams(extra_args={"favoured_token": 5, "fails_after": 0})
    with pytest.raises(GenerationFailed, match="as asked"):
        llm.generate(PROMPT, broken)
    assert llm.generate(PROMPT, params)[0].outputs[0].text == "..."


def test_offline_every_field_has_its_effect(llm: LLM) -> None:
    def run(**fields: Any) -> Any:
        params = SamplingParams(**{"temperature": 0.0, "max_tokens": 6, **fields})
        return llm.generate(PROMPT, params)[0].outputs[0]

    plain = run()
    first = plain.token_ids[0]
    assert run(logit_bias={first: -100.0}).token_ids[0] != first
    assert run(bad_words=["Paris"]).text.find("Paris") == -1
    assert set(run(allowed_token_ids=[5, 6, 7]).token_ids) <= {5, 6, 7}
    stopped = run(stop_token_ids=[plain.token_ids[2]])
    assert (stopped.token_ids, stopped.stop_reason) == (plain.token_ids[:3], plain.token_ids[2])
    assert len(run(stop_token_ids=[plain.token_ids[2]], min_tokens=5).token_ids) >= 5
    stop_string = run(stop=[plain.text[1:4]], include_stop_str_in_output=True)
    assert stop_string.text == plain.text[:4]
    assert run(detokenize=False).text == ""
    assert (
        run(repetition_penalty=2.0, frequency_penalty=2.0, max_tokens=12).token_ids
        != run(max_tokens=12).token_ids
    )
    asked = run(logprob_token_ids=[9, 5]).logprobs
    assert all(set(position) >= {5, 9} for position in asked)
    assert run(flat_logprobs=True, logprobs=2).logprobs == run(logprobs=2).logprobs
    repeats = RepetitionDetectionParams(max_pattern_size=1, min_count=3)
    circle = run(repetition_detection=repeats, extra_args={"favoured_token": FULL_STOP})
    assert (circle.text, circle.finish_reason) == ("...", "repetition")


def test_outputs_of_one_seed_differ_and_are_those_of_its_successors(llm: LLM) -> None:
    hot = {"temperature": 1.5, "max_tokens": 8}
    (several,) = llm.generate(PROMPT, SamplingParams(**hot, seed=5, n=3))  # type: ignore[arg-type]
    singles = [
        llm.generate(PROMPT, SamplingParams(**hot, seed=5 + i))[0].outputs[0].token_ids  # type: ignore[arg-type]
        for i in range(3)
    ]
    assert [output.token_ids for output in several.outputs] == singles
    assert len({tuple(ids) for ids in singles}) == 3
    both = llm.generate([PROMPT] * 2, SamplingParams(**hot))  # type: ignore[arg-type]
    assert both[0].outputs[0].token_ids != both[1].outputs[0].token_ids
