"""Structured output on the real model, through real processes."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import psutil
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar
from octavo.sampling_params import StructuredOutputsParams
from octavo.structured_output.json_schema import prepare_schema
from octavo.structured_output.llguidance import LlguidanceBackend
from octavo.structured_output.vocabulary import make_vocabulary
from tests.fakes.schemas import RandomOutputs, SchemaMaker
from tests.integration.replies import CHAT, COMPLETIONS, chunks, reasons_of, refused, text_of, user
from tests.integration.server import Server, Stream

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
ASK = "Describe a person as JSON, then explain your answer in prose."


def json_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}


def chat(server: Server, schema: Any, **fields: Any) -> tuple[str, str]:
    """Text and finish reason of an answer that must satisfy a schema."""
    more = {"max_tokens": 200, "temperature": 1, "response_format": json_schema(schema), **fields}
    choice = server.chat(ASK, **more)["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def check(text: str, reason: str, schema: Any) -> None:
    if reason == "stop":
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def together(server: Server, schema: Any, seeds: int, **fields: Any) -> list[tuple[str, str]]:
    with ThreadPoolExecutor(seeds) as clients:
        asked = [clients.submit(chat, server, schema, seed=s, **fields) for s in range(seeds)]
        return [each.result() for each in asked]


# ---- schemas


def test_c22_a_schema_without_its_wrapper(live: Server) -> None:
    body = {"type": "json_schema", "schema": {"type": "object"}}
    error = refused(live, CHAT, {"messages": user("Hi"), "response_format": body})
    assert error["param"] == "response_format"
    assert "json_schema is required" in error["message"]


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "objekt"}, "(at /type)"),
        ({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}, "(at /properties/a/$ref)"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "(at /properties/a)"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_c23_schemas_that_are_none(live: Server, schema: Any, pointer: str, stream: bool) -> None:
    body = {"messages": user("Hi"), "stream": stream, "response_format": json_schema(schema)}
    assert pointer in refused(live, CHAT, body)["message"]


def test_c23_a_schema_that_is_a_list(live: Server) -> None:
    for fields in ({"response_format": json_schema([])}, {"structured_outputs": {"json": "[]"}}):
        refused(live, CHAT, {"messages": user("Hi"), **fields})


def test_c25_bounds_beyond_32_bits(live: Server) -> None:
    bounded = {"type": "integer", "minimum": 0, "maximum": 20000000000}
    schema = {"type": "object", "properties": {"n": bounded}, "required": ["n"], "maxProperties": 1}
    for text, reason in together(live, schema, 8):
        assert reason == "stop"
        check(text, reason, schema)


def test_c26_all_of_two_objects_through_references(live: Server) -> None:
    schema = {
        "$defs": {
            "Base": {
                "type": "object",
                "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99}},
                "required": ["id"],
            }
        },
        "allOf": [
            {"$ref": "#/$defs/Base"},
            {
                "type": "object",
                "properties": {"tag": {"enum": ["a", "b"]}},
                "required": ["tag"],
            },
        ],
    }
    answers = together(live, schema, 20, max_tokens=80)
    assert [reason for _, reason in answers].count("stop") > 5
    for text, reason in answers:
        check(text, reason, schema)


def outside_strings(text: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"?', '""', text)


def test_c28_objects_end_with_their_brace_and_whitespace_is_bounded(live: Server) -> None:
    def ask(seed: int) -> tuple[str, str]:
        more = {"max_tokens": 256, "temperature": 1, "seed": seed}
        answer = live.chat(ASK, response_format={"type": "json_object"}, **more)["choices"][0]
        return answer["message"]["content"], answer["finish_reason"]

    with ThreadPoolExecutor(20) as clients:
        answers = list(clients.map(ask, range(20)))
    assert any(reason == "stop" for _, reason in answers)
    for text, reason in answers:
        assert re.search(r"\s{9}", outside_strings(text)) is None
        if reason == "stop":
            assert text.endswith("}")
            assert isinstance(json.loads(text), dict)


def test_c29_numbers_are_bounded_whatever_is_allowed(live: Server) -> None:
    for text, reason in together(live, {}, 20, max_tokens=128):
        assert re.search(r"\d{24}", outside_strings(text)) is None
        check(text, reason, {})


def test_a_number_has_an_end_even_if_the_model_wants_none(live: Server) -> None:
    digits = live.post("/tokenize", {"prompt": "7", "add_special_tokens": False})[1]["tokens"]
    body = {
        "prompt": "Pi is",
        "max_tokens": 100,
        "temperature": 0,
        "structured_outputs": {"json": {}},
    }
    body["logit_bias"] = {str(token): 50 for token in digits}
    choice = live.post(COMPLETIONS, body)[1]["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert re.fullmatch(r"7{20}\D.*|7{1,20}", choice["text"]), choice


# ---- compiling


def nested_one_of(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        value = {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": k}, k: value}, "required": ["k"]}
                for k in "ab"
            ]
        }
    return value


def test_c31_a_client_with_a_huge_schema_leaves(live: Server) -> None:
    """The processor is idle again at once, and nobody else has noticed."""
    body = {"messages": user("Hi"), "response_format": json_schema(nested_one_of(9))}
    before = live.chat("Count.", max_tokens=8)["choices"][0]["message"]["content"]
    for _ in range(3):
        with Stream.__new__(Stream) as stream:
            Stream.__init__(stream, live, CHAT, {**body, "max_tokens": 1})
    after = live.chat("Count.", max_tokens=8)["choices"][0]["message"]["content"]
    assert before == after
    family = [psutil.Process(live.pid), live.core()]
    deadline = time.monotonic() + 10
    while True:
        for process in family:
            process.cpu_percent()
        live.pause(0.5)
        if sum(process.cpu_percent() for process in family) < 10:
            return
        assert time.monotonic() < deadline, "the processor is busy with a schema nobody wants"


def long_schema(number: int) -> dict[str, Any]:
    names = [f"field_{number}_{i}" for i in range(400)]
    return {
        "type": "object",
        "properties": {name: {"type": ["string", "null"], "maxLength": 9} for name in names},
    }


def test_c32_a_long_schema_in_eight_first_uses(live: Server) -> None:
    """Compiled once (`test_c32_concurrent_first_uses_compile_once` counts); plain requests go on
    meanwhile."""
    with ThreadPoolExecutor(9) as clients:
        asked = [clients.submit(chat, live, long_schema(0), seed=s, max_tokens=4) for s in range(8)]
        plain = clients.submit(live.chat, "Count.", max_tokens=4)
        assert plain.result()["choices"][0]["finish_reason"] == "length"
        for each in asked:
            assert each.result()[0].startswith("{")


@pytest.fixture(scope="module")
def llm() -> Any:
    with LLM(max_model_len=512) as made:
        yield made


def test_random_schemas_compile_in_time_and_random_outputs_satisfy_them(
    llm: LLM, request: pytest.FixtureRequest
) -> None:
    """`--long` for 300 schemas and ten outputs each."""
    num_schemas, num_samples = (300, 10) if request.config.getoption("long") else (40, 3)
    tokenizer = llm.get_tokenizer()
    eos = [tokenizer.eos_token_id]
    vocabulary = make_vocabulary(tokenizer, llm.vocab_size, eos)  # type: ignore[arg-type]
    backend = LlguidanceBackend(vocabulary)
    outputs = RandomOutputs(vocabulary, seed=5)
    maker = SchemaMaker(seed=11)
    for _ in range(num_schemas):
        schema = maker.make()
        prepared = prepare_schema(
            schema, allows_whitespace=True, whitespace_pattern=None, is_closed=False
        )
        begin_s = time.thread_time()
        compiled = backend.compile(Grammar("json", json.dumps(prepared)))
        assert time.thread_time() - begin_s < 2, schema
        validator = jsonschema.Draft202012Validator(schema)
        for _ in range(num_samples):
            # one in twenty goes on and on, as random brackets do
            drawn = (outputs.draw(compiled) for _ in range(20))
            text = next(text for text in drawn if text is not None)
            validator.validate(json.loads(text))
    if num_schemas >= 40:
        assert maker.used >= {
            "type", "enum", "const", "properties", "required", "additionalProperties", "items",
            "patternProperties", "prefixItems", "minItems", "maxItems", "minLength", "maxLength",
            "pattern", "format", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
            "multipleOf", "anyOf", "oneOf", "allOf", "$ref", "minProperties", "maxProperties",
        }  # fmt: skip


# ---- together with the rest


def test_c34_schema_tools_and_stream_together(live: Server) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = {
        "messages": user(ASK),
        "temperature": 0,
        "max_tokens": 60,
        "response_format": json_schema(PERSON),
        "tools": [tool],
        "tool_choice": "none",
    }
    status, whole = live.post(CHAT, body)
    assert status == 200, whole
    events = chunks(live, CHAT, body)
    choice = whole["choices"][0]
    assert text_of(events) == choice["message"]["content"]
    assert reasons_of(events) == [choice["finish_reason"]]
    check(text_of(events), choice["finish_reason"], PERSON)


@pytest.mark.parametrize("seed", range(4))
def test_streamed_equals_whole(live: Server, seed: int) -> None:
    body = {
        "prompt": ASK,
        "seed": seed,
        "max_tokens": 60,
        "logprobs": 2,
        "response_format": json_schema(PERSON),
    }
    whole = live.post(COMPLETIONS, body)[1]["choices"][0]
    events = chunks(live, COMPLETIONS, body)
    assert text_of(events) == whole["text"]
    assert reasons_of(events) == [whole["finish_reason"]]
    parts = [c["logprobs"] for e in events for c in e["choices"] if c["logprobs"] is not None]
    streamed = [token for part in parts for token in part["tokens"]]
    assert streamed == whole["logprobs"]["tokens"]
    if whole["text"].isascii():  # part of a character is no text
        assert "".join(streamed) == whole["text"]


def structured(**kind: Any) -> StructuredOutputsParams:
    return StructuredOutputsParams(**kind)


def outputs_of(llm: LLM, prompts: list[str], params: list[SamplingParams]) -> list[list[int]]:
    made = llm.generate(prompts, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in made]


def mixed() -> tuple[list[str], list[SamplingParams]]:
    """Plain requests and requests with grammars in turns."""
    kinds = [
        None,
        structured(json=PERSON),
        None,
        structured(regex="[a-c]{5,40}"),
        structured(json_object=True),
    ]
    prompts = [f"Number {i} in a row of requests: " for i in range(15)]
    params = [
        SamplingParams(temperature=0.9, seed=i, max_tokens=40, structured_outputs=kinds[i % 5])
        for i in range(15)
    ]
    return prompts, params


def test_requests_are_the_same_in_mixed_batches_as_alone(llm: LLM) -> None:
    prompts, params = mixed()
    alone = [outputs_of(llm, [p], [one])[0] for p, one in zip(prompts, params, strict=True)]
    assert outputs_of(llm, prompts, params) == alone


def test_preemption_chunks_and_two_steps_at_a_time_change_nothing(llm: LLM) -> None:
    prompts, params = mixed()
    expected = outputs_of(llm, prompts, params)
    for options in (
        {"num_gpu_blocks_override": 14, "watermark": 0.0},
        {"max_num_batched_tokens": 16, "max_num_seqs": 4},
        {"async_scheduling": True},
    ):
        with LLM(max_model_len=128, **options) as other:
            assert outputs_of(other, prompts, params) == expected, options


def test_grammars_hold_with_other_constraints(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    digits = [tokenizer.encode(str(d), add_special_tokens=False)[0] for d in range(10)]

    def text(kind: StructuredOutputsParams, **params: Any) -> str:
        sampling = SamplingParams(temperature=0, structured_outputs=kind, max_tokens=30, **params)
        return llm.generate(["It is "], sampling, use_tqdm=False)[0].outputs[0].text

    assert set(text(structured(regex="[0-9a-z]{6}"), allowed_token_ids=digits)) <= set("0123456789")
    assert text(structured(choice=["yes", "no"]), bad_words=["no", "n"]) == "yes"
    favoured = tokenizer.encode("no", add_special_tokens=False)[0]
    assert text(structured(choice=["yes", "no"]), logit_bias={favoured: 90}).startswith("n")
    # the end of the grammar is the end, whatever min_tokens and ignore_eos say
    assert text(structured(regex="a{3}"), min_tokens=20) == "aaa"
    assert text(structured(regex="a{3}"), ignore_eos=True) == "aaa"
    assert len(text(structured(regex="a{1,5}b?"), ignore_eos=True)) <= 6
    # min_tokens forbids an end that the grammar only allows
    assert len(text(structured(regex="(a|b| )+"), min_tokens=10)) >= 10


def test_constraints_that_leave_nothing_fail_their_request_alone(live: Server) -> None:
    with ThreadPoolExecutor(4) as clients:
        plain = [clients.submit(live.complete, "Count: 1 2", max_tokens=20) for _ in range(3)]
        body = {
            "prompt": "x",
            "allowed_token_ids": [30],
            "structured_outputs": {"regex": "[a-z]{4}"},
        }
        error = refused(live, COMPLETIONS, body)
        assert "every token was excluded" in error["message"]
        texts = {each.result()["choices"][0]["text"] for each in plain}
    assert texts == {live.complete("Count: 1 2", max_tokens=20)["choices"][0]["text"]}


def test_several_outputs_each_satisfy_the_schema(live: Server) -> None:
    body = {
        "prompt": ASK,
        "n": 3,
        "seed": 1,
        "max_tokens": 100,
        "response_format": json_schema(PERSON),
    }
    answer = live.post(COMPLETIONS, body)[1]
    texts = [choice["text"] for choice in answer["choices"]]
    assert len(set(texts)) == 3
    for choice in answer["choices"]:
        check(choice["text"], choice["finish_reason"], PERSON)


def test_offline_mistakes_are_refused_before_anything_is_computed(llm: LLM) -> None:
    good = SamplingParams(max_tokens=4)
    bad = SamplingParams(structured_outputs=structured(json={"properties": {"a": {"not": {}}}}))
    with pytest.raises(InvalidParameter, match=r"at /properties/a/not"):
        llm.generate(["a", "b"], [good, bad], use_tqdm=False)
    assert llm.generate(["a"], good, use_tqdm=False)[0].finished
