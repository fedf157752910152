"""Damaged, hostile and impossible checkpoints: one clear sentence, and nothing is left running.

The many are tried in this process through `LLM`, which loads what the server loads; one of each
kind is given to `octavo serve`.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import EngineError, GenerationFailed, RequestError, StartupError
from octavo.ops.ggml_type import GGMLType
from tests.fakes.gguf_writer import (
    I32,
    I64,
    STRING,
    U16,
    U64,
    FakeTensor,
    Typed,
    gguf_bytes,
    num_bytes,
)
from tests.fakes.safetensors_writer import safetensors_bytes, with_header
from tests.fakes.tiny_checkpoint import (
    VOCAB_SIZE,
    tiny_arrays,
    tiny_folder,
    tiny_gguf,
    tiny_metadata,
    tiny_tensors,
    tiny_tokenizer,
)
from tests.integration.server import Server, serving

GREEDY = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)


def refusal_of(path: Path) -> str:
    """The sentence with which a model is refused; it names the file and stays on one line."""
    with pytest.raises(StartupError) as caught:
        load_and_generate(path)
    message = caught.value.message
    assert message.isprintable()
    assert len(message) < 600
    assert path.name in message or "generation_config.json" in message
    return message


def load_and_generate(path: Path) -> None:
    """Loads the model and generates a little."""
    llm = LLM(str(path))
    try:
        llm.generate(["hi there"], GREEDY, use_tqdm=False)
    finally:
        llm.close()


# ---- GGUF --------------------------------------------------------------------------------------


def array(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


BAD_METADATA: dict[str, tuple[dict[str, object], str]] = {
    "architecture": ({"general__architecture": "mamba\n"}, "has the architecture 'mamba"),
    "no architecture": ({"general__architecture": None}, "lacks general.architecture"),
    "architecture of a number": ({"general__architecture": 5}, "is not text"),
    "no heads": ({"llama__attention__head_count": 0}, "head_count is 0"),
    "negative heads": ({"llama__attention__head_count": Typed(I32, -4)}, "head_count is -4"),
    "heads that do not divide": ({"llama__attention__head_count": 3}, "3 query heads"),
    "heads of one": ({"llama__attention__head_count": 32}, "head_dim=1"),
    "key heads that do not divide": ({"llama__attention__head_count_kv": 3}, "3 key heads"),
    "no layers": ({"llama__block_count": 0}, "block_count is 0"),
    "negative layers": ({"llama__block_count": Typed(I64, -2)}, "block_count is -2"),
    "a layer too many": ({"llama__block_count": 3}, "lacks the tensor blk.2.attn_q.weight"),
    "a billion layers": ({"llama__block_count": 10**9}, "lacks the tensor blk.2"),
    "no width": ({"llama__embedding_length": 0}, "embedding_length is 0"),
    "another width": ({"llama__embedding_length": 64}, "configuration says"),
    "a billion of width": ({"llama__embedding_length": 10**9}, "head_dim=250000000"),
    "no window": ({"llama__context_length": 0}, "context_length is 0"),
    "endless window": ({"llama__context_length": Typed(U64, 2**62)}, "context_length is 46116"),
    "epsilon": ({"llama__attention__layer_norm_rms_epsilon": float("nan")}, "epsilon is nan"),
    "no epsilon": ({"llama__attention__layer_norm_rms_epsilon": 0.0}, "rms_norm_eps=0"),
    "theta": ({"llama__rope__freq_base": float("inf")}, "freq_base is inf"),
    "odd rotation": ({"llama__rope__dimension_count": 7}, "rotates 7 of 8"),
    "too much rotation": ({"llama__rope__dimension_count": 16}, "rotates 16 of 8"),
    "scaling": ({"llama__rope__scaling__type": "x"}, "rope scaling of type 'x'"),
    "no vocabulary": ({"tokenizer__ggml__tokens": None}, "has no vocabulary"),
    "vocabulary of numbers": ({"tokenizer__ggml__tokens": [1, 2]}, "not a list of strings"),
    "empty vocabulary": (
        {"tokenizer__ggml__tokens": Typed(STRING, [], is_array=True)},
        "has no vocabulary",
    ),
    "merges": ({"tokenizer__ggml__merges": ["qq zz"]}, "does not fit together"),
    "types": ({"tokenizer__ggml__token_type": Typed(I32, [1], is_array=True)}, "but 1 types"),
    "kind of vocabulary": ({"tokenizer__ggml__model": "x"}, "vocabulary of kind 'x'"),
    "template of a number": ({"tokenizer__chat_template": 5}, "chat_template is not text"),
    "alignment": ({"general__alignment": 3}, "alignment is 3"),
    "shard": ({"split__count": Typed(U16, 3), "split__no": Typed(U16, 0)}, "one of 3 shards"),
    "experts": ({"llama__expert_count": 8}, "mixture-of-experts"),
}


@pytest.mark.parametrize("name", BAD_METADATA)
def test_gguf_metadata_that_cannot_be_served(tmp_path: Path, name: str) -> None:
    changes, words = BAD_METADATA[name]
    assert words in refusal_of(tiny_gguf(tmp_path / "m.gguf", tiny_metadata(**changes)))


BAD_TENSORS: dict[str, tuple[dict[str, FakeTensor | None], str]] = {
    "no embedding": ({"token_embd__weight": None}, "lacks the tensor token_embd.weight"),
    "no norm": ({"output_norm__weight": None}, "lacks the tensor output_norm.weight"),
    "no projection": ({"blk__1__ffn_down__weight": None}, "lacks the tensor blk.1.ffn_down.weight"),
    "fewer rows than tokens": (
        {"token_embd__weight": FakeTensor((VOCAB_SIZE - 5, 32))},
        f"has {VOCAB_SIZE} tokens, but its embedding {VOCAB_SIZE - 5}",
    ),
    "embedding of one dimension": ({"token_embd__weight": FakeTensor((64,))}, "token_embd.weight"),
    "shape": ({"blk__0__attn_q__weight": FakeTensor((32, 64))}, "q_proj.weight has shape"),
    "rows": ({"blk__0__attn_k__weight": FakeTensor((32, 16))}, "blk.0.attn_k.weight has 32 rows"),
    "no rows": ({"blk__0__attn_q__weight": FakeTensor((0, 32))}, "shape [0, 32]"),
    "short norm": ({"output_norm__weight": FakeTensor((16,))}, "model.norm.weight has shape [16]"),
    "head": ({"output__weight": FakeTensor((VOCAB_SIZE - 1, 32))}, "lm_head.weight has shape"),
    "unknown": ({"foo__weight": FakeTensor((32,))}, "tensor foo.weight is not part of"),
    "half a bias": ({"blk__0__attn_q__bias": FakeTensor((32,))}, "lacks the tensor blk.0.attn_k.b"),
    "frequencies": ({"rope_freqs__weight": FakeTensor((3,))}, "rope_freqs.weight"),
    "beyond the end": ({"output_norm__weight": FakeTensor((32,), offset=2**40)}, "should end"),
    "overlap": ({"output_norm__weight": FakeTensor((32,), offset=0)}, "overlap"),
    "odd offset": ({"output_norm__weight": FakeTensor((32,), offset=7)}, "not aligned"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_gguf_tensors_that_cannot_be_served(tmp_path: Path, name: str) -> None:
    changes, words = BAD_TENSORS[name]
    assert words in refusal_of(tiny_gguf(tmp_path / "m.gguf", None, tiny_tensors(**changes)))


def test_changed_bytes_of_a_gguf_file_end_in_a_sentence_or_do_no_harm(tmp_path: Path) -> None:
    good = gguf_bytes(tiny_metadata(), tiny_tensors())
    header = len(good) - sum(num_bytes(tensor) for tensor in tiny_tensors().values())
    table = good.index(b"blk.0.attn_norm.weight")
    rng = random.Random(7)
    path = tmp_path / "m.gguf"
    for _ in range(150):
        data = bytearray(good)
        kind = rng.randrange(5)
        at = rng.randrange(header if rng.random() < 0.5 else 200)
        if kind == 0:
            del data[rng.choice((rng.randrange(len(data)), rng.randrange(header), at)) :]
        elif kind == 1:
            size = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1)))
            data[at : at + 8] = size
        elif kind == 2:
            data[at:at] = data[at : at + rng.randrange(1, 40)]
        elif kind == 3:
            data[rng.randrange(table, header)] = rng.randrange(256)
        else:
            data[at] = rng.randrange(256)
        path.write_bytes(data)
        try:
            load_and_generate(path)
        except (StartupError, EngineError, RequestError):
            continue


@pytest.mark.parametrize(
    "changes",
    [
        {"output_norm__weight": FakeTensor((32,), data=array(*[np.nan] * 32))},
        {"output_norm__weight": FakeTensor((32,), data=array(*[np.inf] * 32))},
        {"blk__0__attn_q__weight": FakeTensor((32, 32), data=array(*[1e38] * 1024))},
        {
            "blk__0__attn_q__weight": FakeTensor(
                (32, 32),
                GGMLType.Q8_0,
                data=(np.float16(np.inf).tobytes() + b"\x01" * 32) * 32,
            )
        },
    ],
)
def test_weights_that_are_no_numbers_fail_the_request(
    tmp_path: Path, changes: dict[str, FakeTensor | None]
) -> None:
    with pytest.raises(GenerationFailed, match="not numbers"):
        load_and_generate(tiny_gguf(tmp_path / "m.gguf", None, tiny_tensors(**changes)))


# ---- folders -----------------------------------------------------------------------------------

NORM = "model.norm.weight"


def header_with(entry: object) -> bytes:
    """The good safetensors file with another entry for one tensor."""
    good = safetensors_bytes(tiny_arrays())
    (size,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + size])
    header[NORM] = {**header[NORM], **entry} if isinstance(entry, dict) else entry
    return with_header(json.dumps(header).encode(), good[8 + size :])


def good_file() -> bytes:
    return safetensors_bytes(tiny_arrays())


BAD_SAFETENSORS: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "it is empty"),
    "short": (lambda: good_file()[:7], "inside the header's length"),
    "short header": (lambda: good_file()[:50], "ends inside the header"),
    "short data": (lambda: good_file()[:-100], "should end at byte"),
    "huge header": (lambda: struct.pack("<Q", 2**62) + good_file()[8:], "claims to be"),
    "negative header": (lambda: struct.pack("<q", -5) + good_file()[8:], "claims to be"),
    "no JSON": (lambda: with_header(b"{" * 100), "cannot be read"),
    "deep JSON": (lambda: with_header(b"[" * 100_000), "cannot be read"),
    "a list": (lambda: with_header(b"[]"), "is not a JSON object"),
    "not UTF-8": (lambda: with_header(b'{"\xff":1}'), "cannot be read"),
    "no tensor": (lambda: with_header(b"{}"), "lacks the tensor"),
    "entry": (lambda: header_with(5), f"tensor {NORM} has no dtype"),
    "type": (lambda: header_with({"dtype": "X9"}), f"{NORM} has type X9"),
    "integers": (lambda: header_with({"dtype": "I32"}), f"{NORM} has type I32"),
    "shape": (lambda: header_with({"shape": [4, 8]}), f"{NORM} has shape [4, 8]"),
    "long shape": (lambda: header_with({"shape": [1] * 9999 + [32]}), f"{NORM} has shape"),
    "negative shape": (lambda: header_with({"shape": [-32]}), "not a whole number"),
    "huge shape": (lambda: header_with({"shape": [2**62, 2**62]}), "does not have 128 bytes"),
    "beyond": (lambda: header_with({"data_offsets": [2**40, 2**40 + 128]}), "should end"),
    "backwards": (lambda: header_with({"data_offsets": [128, 0]}), "does not have -128 bytes"),
    "overlap": (lambda: header_with({"data_offsets": [0, 128]}), "overlap"),
}


@pytest.mark.parametrize("name", BAD_SAFETENSORS)
def test_safetensors_that_cannot_be_served(tmp_path: Path, name: str) -> None:
    make, words = BAD_SAFETENSORS[name]
    assert words in refusal_of(tiny_folder(tmp_path / "m", files={"model.safetensors": make()}))


BAD_CONFIG: dict[str, tuple[dict[str, object], str]] = {
    "architecture": ({"architectures": ["X\nY"]}, "architecture X?Y is not supported"),
    "no architecture": ({"architectures": []}, "which architecture"),
    "no heads": ({"num_attention_heads": 0}, "num_attention_heads=0"),
    "negative layers": ({"num_hidden_layers": -1}, "num_hidden_layers=-1"),
    "heads that do not divide": ({"num_attention_heads": 3}, "divisor of num_attention_heads=3"),
    "heads of text": ({"num_attention_heads": "4"}, "num_attention_heads='4'"),
    "heads of a fraction": ({"num_attention_heads": 4.5}, "num_attention_heads=4.5"),
    "no head size": ({"head_dim": 0}, "head_dim=0"),
    "odd head size": ({"head_dim": 7}, "head_dim=7"),
    "a billion of head size": ({"head_dim": 10**9}, "head_dim=1000000000"),
    "vocabulary without end": ({"vocab_size": 10**12}, "vocab_size is 1000000000000"),
    "another vocabulary": ({"vocab_size": VOCAB_SIZE + 1}, "embed_tokens.weight has shape"),
    "no vocabulary": ({"vocab_size": None}, "vocab_size is None"),
    "width without end": ({"hidden_size": 10**15}, "head_dim=250000000000000"),
    "layers without end": ({"num_hidden_layers": 10**12}, "lacks the tensor model.layers.2"),
    "no window": ({"max_position_embeddings": None}, "max_position_embeddings is None"),
    "window without end": ({"max_position_embeddings": 10**12}, "max_position_embeddings is"),
    "theta": ({"rope_theta": "a"}, "rope_theta='a'"),
    "rope": ({"rope_scaling": {"rope_type": ["x"]}}, "rope_type=['x']"),
    "rope factor": ({"rope_scaling": {"rope_type": "linear", "factor": 1e300}}, "factor=1e+300"),
    "activation": ({"hidden_act": ["silu"]}, "hidden_act=['silu']"),
    "tied": ({"tie_word_embeddings": "yes"}, "tie_word_embeddings='yes'"),
    "untied": ({"tie_word_embeddings": False}, "lacks the tensor lm_head.weight"),
    "quantised": ({"quantization_config": {"quant_method": "x\ny"}}, "is quantised with"),
}


@pytest.mark.parametrize("name", BAD_CONFIG)
def test_configurations_that_cannot_be_served(tmp_path: Path, name: str) -> None:
    changes, words = BAD_CONFIG[name]
    assert words in refusal_of(tiny_folder(tmp_path / "m", config=changes))


def tokenizer_with(**changes: Any) -> dict[str, Any]:
    return {**tiny_tokenizer(), **changes}


UNKNOWN_TOKEN = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<nope>", "type_id": 0}}],
    "pair": [],
    "special_tokens": {},
}
BAD_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "no config": ({"config.json": None}, "neither a GGUF file nor config.json"),
    "empty config": ({"config.json": b""}, "config.json is not valid JSON"),
    "deep config": ({"config.json": b"[" * 100_000}, "config.json is not valid JSON"),
    "config of a list": ({"config.json": b"[]"}, "config.json is not a JSON object"),
    "no weights": ({"model.safetensors": None}, "nothing to serve"),
    "other weights": (
        {"model.safetensors": None, "pytorch_model.bin": b"x"},
        "weights in pytorch_model.bin",
    ),
    "index without files": (
        {"model.safetensors": None, "model.safetensors.index.json": {"weight_map": {"a": "b"}}},
        "lacks the files that model.safetensors.index.json names",
    ),
    "index outside": (
        {"model.safetensors.index.json": {"weight_map": {"a": "../../etc/passwd"}}},
        "outside its folder",
    ),
    "index with a missing shard": (
        {"model.safetensors.index.json": {"weight_map": {"a": "b.safetensors"}}},
        "lacks 'b.safetensors'",
    ),
    "no tokenizer": ({"tokenizer.json": None}, "has no tokenizer.json"),
    "empty tokenizer": ({"tokenizer.json": b""}, "tokenizer.json is not a usable tokenizer"),
    "tokenizer without model": ({"tokenizer.json": {}}, "is not a usable tokenizer"),
    "tokenizer with a bad pattern": (
        {
            "tokenizer.json": tokenizer_with(
                pre_tokenizer={
                    "type": "Split",
                    "pattern": {"Regex": "(((("},
                    "behavior": "Isolated",
                    "invert": False,
                }
            )
        },
        "is not a usable tokenizer",
    ),
    "tokenizer that panics": (
        {"tokenizer.json": tokenizer_with(post_processor=UNKNOWN_TOKEN)},
        "failed: no entry found",
    ),
    "tokenizer without decoder": (
        {"tokenizer.json": tokenizer_with(decoder=None)},
        "no decoder, which is not supported",
    ),
    "tokenizer_config": ({"tokenizer_config.json": b"{"}, "tokenizer_config.json is not valid"),
    "templates": (
        {"tokenizer_config.json": {"chat_template": [{"name": 5}]}},
        "without name and template",
    ),
    "template in Latin-1": ({"chat_template.jinja": b"\xff"}, "chat_template.jinja cannot be read"),
    "generation_config": ({"generation_config.json": b"[]"}, "is not a JSON object"),
    "temperature": ({"generation_config.json": {"temperature": "hot"}}, "must be a number"),
    "penalty": ({"generation_config.json": {"repetition_penalty": 0}}, "--generation-config vllm"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_of_a_folder_that_cannot_be_served(tmp_path: Path, name: str) -> None:
    files, words = BAD_FILES[name]
    assert words in refusal_of(tiny_folder(tmp_path / "m", files=files))


# ---- the server --------------------------------------------------------------------------------


def refusal(server: Server) -> str:
    """The last line of a server that does not start, without its prefix; nothing of it is left."""
    try:
        family = server.children()
        assert server.wait_exit(10) in {1, 2}, server.log
        assert not psutil.wait_procs(family, timeout=2)[1]
    finally:
        server.stop()
    assert "Traceback" not in server.log
    return server.log.strip().splitlines()[-1]


def nan_norm() -> dict[str, FakeTensor]:
    return tiny_tensors(output_norm__weight=FakeTensor((32,), data=array(*[np.nan] * 32)))


def good(folder: Path) -> Path:
    return tiny_gguf(folder / "m.gguf")


REFUSED_STARTS: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "architecture": (
        lambda folder: tiny_gguf(folder / "m.gguf", tiny_metadata(general__architecture="x")),
        "",
        "m.gguf",
    ),
    "tensor": (
        lambda folder: tiny_gguf(folder / "m.gguf", None, tiny_tensors(output_norm__weight=None)),
        "",
        "output_norm.weight",
    ),
    "config": (lambda folder: tiny_folder(folder / "m", config={"head_dim": 7}), "", "head_dim=7"),
    "safetensors": (
        lambda folder: tiny_folder(folder / "m", files={"model.safetensors": b"x" * 99}),
        "",
        "model.safetensors",
    ),
    "tokenizer": (
        lambda folder: tiny_folder(
            folder / "m", files={"tokenizer.json": tokenizer_with(post_processor=UNKNOWN_TOKEN)}
        ),
        "",
        "tokenizer",
    ),
    "window": (good, "--max-model-len 100000", "--max-model-len 100000"),
    "cache": (good, "--kv-cache-memory-bytes 1000", "--kv-cache-memory-bytes"),
    "blocks": (good, "--num-gpu-blocks-override 1", "--num-gpu-blocks-override"),
    "few blocks": (
        good,
        "--max-model-len 128 --num-gpu-blocks-override 3",
        "--num-gpu-blocks-override",
    ),
}


@pytest.mark.parametrize("name", REFUSED_STARTS)
def test_a_server_that_cannot_start_says_why_in_its_last_line(tmp_path: Path, name: str) -> None:
    make, args, words = REFUSED_STARTS[name]
    last = refusal(Server(tmp_path / "log", *args.split(), model=str(make(tmp_path))))
    assert words in last


def test_weights_that_are_no_numbers_are_a_500_and_the_server_lives(tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "m.gguf", None, nan_norm())
    with serving(tmp_path / "log", model=str(model)) as server:
        for stream in (False, True, False):
            body = {"prompt": "hi", "max_tokens": 3, "stream": stream}
            status, _, data = server.request("POST", "/v1/completions", body)
            assert status == 500
            assert "not numbers" in json.loads(data)["error"]["message"]
            assert server.request("GET", "/health")[0] == 200
        assert server.metric("vllm:num_requests_running") == 0
        assert server.metric("vllm:kv_cache_usage_perc") == 0
        assert "Traceback" not in server.log


def test_one_request_without_numbers_fails_alone(tmp_path: Path) -> None:
    rows = np.frombuffer(tiny_tensors()["token_embd.weight"].data or b"", np.float32).copy()
    rows = rows.reshape(VOCAB_SIZE, 32)
    rows[300] = np.nan  # one token that no other request has
    tensors = tiny_tensors(token_embd__weight=FakeTensor(rows.shape, data=rows.tobytes()))
    # the head is another matrix: logits of the others stay numbers
    head = np.random.default_rng(1).standard_normal((VOCAB_SIZE, 32), dtype=np.float32)
    head[300] = -np.abs(head[300]) * 1e-3
    tensors["output.weight"] = FakeTensor(head.shape, data=head.tobytes())
    with serving(
        tmp_path / "log", model=str(tiny_gguf(tmp_path / "m.gguf", None, tensors))
    ) as server:
        asked = {"max_tokens": 40, "ignore_eos": True, "logit_bias": {"300": -100}}
        alone = server.complete("the sea", **asked)["choices"][0]["text"]
        for _ in range(3):
            status, answer = server.post(
                "/v1/completions", {"prompt": [7, 300, 9], "max_tokens": 5}
            )
            assert status == 500
            assert "not numbers" in answer["error"]["message"]
        assert server.complete("the sea", **asked)["choices"][0]["text"] == alone
        assert server.request("GET", "/health")[0] == 200
