"""The command line of `octavo serve`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config.flags.flag import BOOL, FLOAT, INT, STR, Flag
from octavo.config.flags.table import BY_FIELD, FLAGS
from octavo.config.parser import parse_serve
from octavo.errors import ConfigError


def options(line: str) -> dict[str, object]:
    return parse_serve(line.split()).options


def test_an_empty_line_gives_nothing() -> None:
    parsed = parse_serve([])
    assert parsed.options == {}
    assert parsed.warnings == []
    assert parsed.help_topic is None


def test_the_model_is_positional() -> None:
    assert options("m.gguf --port 1") == {"model": "m.gguf", "port": 1}
    assert options("--port 1 m.gguf") == {"model": "m.gguf", "port": 1}
    assert options("--port 1 -- --m") == {"model": "--m", "port": 1}


@pytest.mark.parametrize("word", ["--max-model-len", "--max_model_len", "--max_model-len"])
def test_dashes_and_underscores_are_the_same(word: str) -> None:
    assert parse_serve([word, "8k"]).options == {"max_model_len": 8000}
    assert parse_serve([f"{word}=8K"]).options == {"max_model_len": 8192}


def test_booleans_are_turned_on_and_off() -> None:
    assert options("--enable-prefix-caching") == {"enable_prefix_caching": True}
    assert options("--no-enable-prefix-caching") == {"enable_prefix_caching": False}
    assert options("--no_enable_prefix_caching") == {"enable_prefix_caching": False}
    assert options("--enable-prefix-caching=false") == {"enable_prefix_caching": False}


def test_a_boolean_with_a_separate_value_is_explained() -> None:
    with pytest.raises(ConfigError, match="--disable-log-stats takes no value: write --disable-l"):
        options("--disable-log-stats true")
    with pytest.raises(ConfigError, match="--no-disable-log-stats takes no value, got 'true'"):
        options("--no-disable-log-stats=true")


def test_lists_take_all_words_up_to_the_next_flag() -> None:
    assert options("m --api-key a b --port 1") == {"model": "m", "api_key": ["a", "b"], "port": 1}
    assert options("m --served-model-name=a") == {"model": "m", "served_model_name": ["a"]}


def test_repeatable_flags_collect() -> None:
    assert options("--middleware a.B --middleware c.D") == {"middleware": ["a.B", "c.D"]}


def test_other_flags_given_twice_warn_and_the_last_counts() -> None:
    parsed = parse_serve(["--port", "1", "--port", "2"])
    assert parsed.options == {"port": 2}
    assert parsed.warnings == ["--port is given twice; the last one counts"]


def test_negative_numbers_are_values() -> None:
    assert options("--max-logprobs -1") == {"max_logprobs": -1}
    assert options("--seed -5") == {"seed": -5}


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^--port needs a value$"):
        options("--port")
    with pytest.raises(ConfigError, match=r"^--port needs a value$"):
        options("--port --host x")
    with pytest.raises(ConfigError, match=r"^--api-key needs a value$"):
        options("--api-key")


@pytest.mark.parametrize("line", ["-O3", "-O 3", "-O=3", "--optimization-level 3"])
def test_the_optimization_level_has_three_spellings(line: str) -> None:
    assert options(line) == {"optimization_level": 3}


@pytest.mark.parametrize("line", ["-tp 2", "-tp=2", "--tensor_parallel_size 2"])
def test_short_forms_may_have_several_letters(line: str) -> None:
    assert options(line) == {"tensor_parallel_size": 2}


def test_nested_keys_build_an_object() -> None:
    assert options("--hf-overrides.rope_scaling.factor 2.5 --hf_overrides.name yarn") == {
        "hf_overrides": {"rope_scaling": {"factor": 2.5}, "name": "yarn"}
    }
    assert options("-cc.mode=3 -cc.custom_ops+ none,+rms") == {
        "compilation_config": {"mode": 3, "custom_ops": ["none", "+rms"]}
    }


def test_keys_go_on_top_of_the_json_of_the_same_flag() -> None:
    words = ["--hf-overrides", '{"a": {"b": 1, "c": 2}}', "--hf-overrides.a.b", "3"]
    assert parse_serve(words).options == {"hf_overrides": {"a": {"b": 3, "c": 2}}}


def test_appending_goes_on() -> None:
    assert options("--hf-overrides.x+ 1,2 --hf-overrides.x+ b") == {
        "hf_overrides": {"x": [1, 2, "b"]}
    }


def test_a_key_given_twice_warns() -> None:
    parsed = parse_serve(["--hf-overrides.a", "1", "--hf-overrides.a", "2"])
    assert parsed.options == {"hf_overrides": {"a": 2}}
    assert parsed.warnings == ["--hf-overrides.a is given twice; the last one counts"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--port.x 1", "--port takes one value and has no key 'x'"),
        ("--hf-overrides. 1", "--hf-overrides. has an empty key"),
        ("--hf-overrides.a..b 1", "--hf-overrides.a..b has an empty key"),
        ("--hf-overrides.a 1 --hf-overrides.a.b 2", "'a' already has the value 1"),
        ("--hf-overrides.a 1 --hf-overrides.a+ 2", "'a' is 1, not a list"),
    ],
)
def test_keys_that_make_no_sense_are_explained(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options(line)
    assert sentence in caught.value.message


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--max-modle-len 1", "unknown flag --max-modle-len; did you mean --max-model-len"),
        ("--max-model 1", "did you mean --max-model-len"),
        ("-tpp 1", "unknown flag -tpp; did you mean -tp or -pp?"),
        ("--zzzzz", "unknown flag --zzzzz (octavo serve --help=all lists every flag)"),
        ("--no-port", "unknown flag --no-port"),
        ("m n", "unexpected argument 'n': octavo serve takes one model"),
        ("--served-model-name a m", "put the model first (octavo serve MODEL --served-model-name"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options(line)
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message


def test_an_empty_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="the model is an empty string"):
        parse_serve([""])


def test_the_default_model_may_have_one_other_name() -> None:
    assert options("--served-model-name tiny") == {"served_model_name": ["tiny"]}


def test_the_model_flag_works_and_is_deprecated() -> None:
    parsed = parse_serve(["--model", "m"])
    assert parsed.options == {"model": "m"}
    assert parsed.warnings == ["--model is deprecated with octavo serve: write octavo serve m"]


def test_the_positional_model_comes_before_the_flag() -> None:
    parsed = parse_serve(["a", "--model", "b"])
    assert parsed.options == {"model": "a"}
    assert "--model b is ignored: the positional argument names a" in parsed.warnings


@pytest.mark.parametrize(
    ("line", "topic"),
    [("--help", ""), ("-h", ""), ("--help=all", "all"), ("m --help=port --zzz", "port")],
)
def test_help_stops_the_reading(line: str, topic: str) -> None:
    assert parse_serve(line.split()).help_topic == topic


def test_the_file_is_below_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("model: m\nport: 1\nmax-num-seqs: 3\nhf-overrides:\n  a: 1\n  b: 1\n")
    parsed = parse_serve(["--config", str(path), "--port", "2", "--hf-overrides.b", "2"])
    assert parsed.options == {
        "model": "m",
        "port": 2,
        "max_num_seqs": 3,
        "hf_overrides": {"a": 1, "b": 2},
    }
    assert parsed.warnings == []


def test_the_positional_model_comes_before_the_files(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("model: m\n")
    assert parse_serve(["n", "--config", str(path)]).options == {"model": "n"}


SIMPLE = [f for f in FLAGS if f.kind in (BOOL, INT, FLOAT, STR) and f.field != "model_tag"]


@given(st.sampled_from(SIMPLE), st.booleans())
def test_every_simple_flag_reads_its_own_default(flag: Flag, underscores: bool) -> None:
    name = flag.field if underscores else flag.name
    if flag.kind == BOOL:
        assert options(f"--{name}") == {flag.field: True}
        assert options(f"--no-{name}") == {flag.field: False}
    elif flag.default is not None:
        assert parse_serve([f"--{name}={flag.default}"]).options == {flag.field: flag.default}


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_line_gives_options_or_one_sentence(words: list[str]) -> None:
    try:
        parsed = parse_serve([word for word in words if not word.startswith("--config")])
    except ConfigError:
        return
    assert set(parsed.options) <= set(BY_FIELD)
