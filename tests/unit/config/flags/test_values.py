"""Reading values of flags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config.flags.flag import Flag
from octavo.config.flags.table import BY_NAME, FLAGS
from octavo.config.flags.values import AUTO_WINDOW, convert, read_json_or_text, read_size
from octavo.errors import ConfigError


def flag(name: str) -> Flag:
    return BY_NAME[name]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8192", 8192),
        ("8k", 8000),
        ("8K", 8192),
        ("1.5k", 1500),
        ("2m", 2_000_000),
        ("2M", 2 * 2**20),
        ("1g", 10**9),
        ("1G", 2**30),
        ("1t", 10**12),
        ("1T", 2**40),
    ],
)
def test_sizes_take_decimal_and_binary_suffixes(text: str, size: int) -> None:
    assert convert(flag("max-num-batched-tokens"), text) == size


def test_binary_suffixes_take_whole_numbers_only() -> None:
    with pytest.raises(ConfigError, match=r"--max-num-batched-tokens must be an integer.*'1\.5K'"):
        convert(flag("max-num-batched-tokens"), "1.5K")


@pytest.mark.parametrize("text", ["", "k", "8kb", "eight", "8 k 8", "infk", "nan"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-num-batched-tokens must be"):
        convert(flag("max-num-batched-tokens"), text)


@given(st.integers(min_value=1, max_value=10**6))
def test_a_size_reads_back_from_every_suffix(count: int) -> None:
    assert read_size(f"{count}") == count
    assert read_size(f"{count}k") == count * 1000
    assert read_size(f"{count}K") == count * 1024


@pytest.mark.parametrize("value", ["auto", "-1", -1])
def test_the_window_may_be_auto(value: object) -> None:
    assert convert(flag("max-model-len"), value) == AUTO_WINDOW


@pytest.mark.parametrize("value", ["0", -2, "-5", "big", True])
def test_a_window_must_be_positive(value: object) -> None:
    with pytest.raises(ConfigError, match="--max-model-len must be"):
        convert(flag("max-model-len"), value)


def test_numbers_are_bounded_on_both_sides() -> None:
    assert convert(flag("port"), "65535") == 65535
    with pytest.raises(ConfigError, match="--port must be between 0 and 65535, got 65536"):
        convert(flag("port"), "65536")
    with pytest.raises(ConfigError, match="--max-num-seqs must be a number of at most 63 bits"):
        convert(flag("max-num-seqs"), "9" * 30)
    with pytest.raises(ConfigError, match="--max-num-seqs must be at least 1, got 0"):
        convert(flag("max-num-seqs"), 0)


@pytest.mark.parametrize("value", ["1.5", "x", None, [1], True])
def test_integers_are_integers(value: object) -> None:
    with pytest.raises(ConfigError, match="--port must be an integer"):
        convert(flag("port"), value)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "x", True, [0.5]])
def test_floats_are_finite(value: object) -> None:
    with pytest.raises(ConfigError, match="--watermark must be a"):
        convert(flag("watermark"), value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("FALSE", False), ("1", True), ("off", False), (True, True), (False, False)],
)
def test_booleans_take_words(value: object, expected: bool) -> None:
    assert convert(flag("disable-log-stats"), value) is expected


@pytest.mark.parametrize("value", ["maybe", "", 1, 0.0, []])
def test_other_booleans_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"true or false \(--disable-log-stats or --no-disable"):
        convert(flag("disable-log-stats"), value)


def test_choices_ignore_letter_case() -> None:
    assert convert(flag("log-level"), "debug") == "DEBUG"
    assert convert(flag("dtype"), "BFloat16") == "bfloat16"


def test_a_wrong_choice_is_answered_with_the_right_ones() -> None:
    with pytest.raises(ConfigError, match=r"--dtype must be one of auto, half, .*, got 'int4'"):
        convert(flag("dtype"), "int4")


def test_json_objects_come_as_text_or_mapping() -> None:
    assert convert(flag("hf-overrides"), '{"a": {"b": 1}}') == {"a": {"b": 1}}
    assert convert(flag("hf-overrides"), {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("value", ["{", "[1]", "3", 3, [1]])
def test_json_that_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="--hf-overrides must be a JSON object"):
        convert(flag("hf-overrides"), value)


def test_json_lists_come_as_text_or_list() -> None:
    assert convert(flag("allowed-origins"), '["https://a"]') == ["https://a"]
    assert convert(flag("allowed-origins"), ("a", "b")) == ["a", "b"]


@pytest.mark.parametrize("value", ["*", "{}", 3])
def test_json_that_is_no_list_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="--allowed-origins must be a JSON list"):
        convert(flag("allowed-origins"), value)


def test_one_word_is_a_list_of_one() -> None:
    assert convert(flag("served-model-name"), "a") == ["a"]
    assert convert(flag("cudagraph-capture-sizes"), "8") == [8]
    assert convert(flag("cudagraph-capture-sizes"), [1, "2"]) == [1, 2]


def test_unquoted_yaml_numbers_are_strings_where_strings_are_wanted() -> None:
    assert convert(flag("revision"), 1.5) == "1.5"
    with pytest.raises(ConfigError, match="--revision must be a string, got True"):
        convert(flag("revision"), True)


def test_the_hub_token_may_be_true() -> None:
    assert convert(flag("hf-token"), True) is True
    assert convert(flag("hf-token"), "hf_x") == "hf_x"


def test_a_wrong_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        convert(flag("hf-token"), {"secret": "hf_abc"})
    assert "hf_abc" not in caught.value.message


def test_none_is_kept_only_where_it_is_the_default() -> None:
    assert convert(flag("host"), None) is None
    with pytest.raises(ConfigError, match="--seed must be an integer"):
        convert(flag("seed"), None)


def test_key_values_are_json_where_they_can_be() -> None:
    assert read_json_or_text("2.5") == 2.5
    assert read_json_or_text("true") is True
    assert read_json_or_text("yarn") == "yarn"


@pytest.mark.parametrize("each", FLAGS, ids=lambda each: each.name)
def test_every_default_is_a_valid_value(each: Flag) -> None:
    assert convert(each, each.default) == each.default
