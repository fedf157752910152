"""How long a request may be."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.rules.window import Window, choose_window, trained_window
from octavo.errors import ConfigError


def choose(given: int | None, **changes: Any) -> tuple[Window, str]:
    facts: dict[str, Any] = {
        "trained": 2048,
        "sliding_window": None,
        "disable_sliding_window": False,
        "allow_long": False,
        **changes,
    }
    return choose_window(given, **facts)


def test_nothing_given_is_the_trained_window() -> None:
    window, reason = choose(None)
    assert window == Window(2048, is_given=False)
    assert reason == "max_model_len 2048: the window the model was trained for"


def test_auto_is_the_trained_window_or_what_fits() -> None:
    window, reason = choose(-1)
    assert window == Window(2048, is_given=False)
    assert "--max-model-len auto" in reason


@pytest.mark.parametrize("given", [1, 100, 2048])
def test_a_given_window_within_the_trained_one_is_kept(given: int) -> None:
    assert choose(given) == (Window(given, is_given=True), "")


def test_a_window_above_the_trained_one_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        ConfigError, match=r"--max-model-len 2049 is above 2048, .*OCTAVO_ALLOW_LONG_MAX_MODEL_LEN"
    ):
        choose(2049)


def test_a_window_above_the_trained_one_may_be_allowed() -> None:
    window, reason = choose(4096, allow_long=True)
    assert window == Window(4096, is_given=True)
    assert "not to be trusted" in reason


def test_without_sliding_windows_the_window_ends_where_sliding_begins() -> None:
    window, reason = choose(None, sliding_window=512, disable_sliding_window=True)
    assert window.max_model_len == 512
    assert "--disable-sliding-window" in reason
    with pytest.raises(ConfigError, match="--max-model-len 513 is above 512"):
        choose(513, sliding_window=512, disable_sliding_window=True, allow_long=True)


def test_a_sliding_window_alone_limits_nothing() -> None:
    assert choose(None, sliding_window=512)[0].max_model_len == 2048
    assert choose(None, disable_sliding_window=True)[0].max_model_len == 2048


def test_overrides_change_the_trained_window() -> None:
    assert trained_window(2048, {}, {}) == 2048
    assert trained_window(2048, {}, {"max_position_embeddings": 4096}) == 4096


@pytest.mark.parametrize("value", [0, -1, 1.5, "4096", True, None])
def test_an_overridden_window_must_be_a_positive_integer(value: object) -> None:
    with pytest.raises(ConfigError, match="max_position_embeddings must be a positive integer"):
        trained_window(2048, {}, {"max_position_embeddings": value})


@pytest.mark.parametrize(
    ("scaling", "window"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}, 4096),
        ({"type": "linear", "factor": 2}, 4096),
        ({"rope_type": "dynamic", "factor": 1.5}, 3072),
        ({"rope_type": "llama3", "factor": 8.0}, 2048),
        ({"rope_type": "default"}, 2048),
        (None, 2048),
    ],
)
def test_overridden_rope_scaling_lengthens_it(scaling: object, window: int) -> None:
    overrides = {"rope_scaling": scaling}
    assert trained_window(2048, overrides, overrides) == window


def test_the_models_own_scaling_is_part_of_its_window_already() -> None:
    scaling = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    assert trained_window(2048, scaling, {}) == 2048


@pytest.mark.parametrize("factor", [0.5, "2", None, float("inf"), float("nan")])
def test_a_scaling_factor_must_be_a_number_of_at_least_one(factor: object) -> None:
    overrides = {"rope_scaling": {"rope_type": "yarn", "factor": factor}}
    with pytest.raises(ConfigError, match="rope scaling factor must be in"):
        trained_window(2048, overrides, overrides)
