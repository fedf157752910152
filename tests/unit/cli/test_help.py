"""Help texts."""

from __future__ import annotations

import pytest

from octavo.cli.help import serve_help
from octavo.config.flags.table import FLAGS, GROUPS
from octavo.errors import ConfigError


def test_plain_help_lists_groups_only() -> None:
    text = serve_help("")
    assert all(name in text for name in GROUPS)
    assert "--max-num-seqs" not in text


def test_all_lists_every_flag() -> None:
    text = serve_help("all")
    for flag in FLAGS:
        assert flag.field == "model_tag" or f"{flag.name}" in text


@pytest.mark.parametrize("topic", ["SchedulerConfig", "schedulerconfig"])
def test_a_group_is_shown_by_name(topic: str) -> None:
    text = serve_help(topic)
    assert text.startswith("SchedulerConfig:")
    assert "--max-num-seqs" in text
    assert "--port" not in text


@pytest.mark.parametrize("topic", ["max-model-len", "max_model_len", "--max-model-len"])
def test_a_flag_is_shown_by_name(topic: str) -> None:
    assert serve_help(topic) == (
        "ModelConfig:\n"
        "  --max-model-len WINDOW\n"
        "      longest prompt plus output in tokens; auto: the largest that fits in memory"
        " (default: the\n"
        "      trained window, lowered if it does not fit in memory)"
    )


def test_short_forms_and_booleans_are_spelt_out() -> None:
    assert "  -tp, --tensor-parallel-size INT" in serve_help("-tp")
    assert "  --[no-]enable-prefix-caching\n" in serve_help("enable-prefix-caching")


def test_a_word_finds_every_flag_that_mentions_it() -> None:
    text = serve_help("chunked")
    assert "--[no-]enable-chunked-prefill" in text
    assert "--port" not in text


def test_flags_without_effect_say_why() -> None:
    assert "[no effect here: there is nothing to compile]" in serve_help("enforce-eager")
    assert "[not supported: LoRA adapters are not available yet]" in serve_help("enable-lora")
    assert "[gone from vLLM's command line: use --runner" in serve_help("task")
    assert "[supported: auto, generate: pooling models" in serve_help("runner")


def test_lines_fit_a_terminal() -> None:
    assert max(map(len, serve_help("Frontend").splitlines())) <= 100


def test_what_matches_nothing_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match="no flag, group or text matches 'prot'; did you mean por"
    ):
        serve_help("prot")
