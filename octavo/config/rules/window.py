"""How long a request may be: `max_model_len`.

Runs in: the API process, `LLM`. Knows nothing of: memory; a window that was not given is lowered
in `octavo/core/kv_cache_plan.py` if it does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from octavo.config.flags.values import AUTO_WINDOW
from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError

#: kinds of rope scaling that lengthen the trained window by their factor
_LENGTHENING = frozenset({"linear", "dynamic", "yarn", "ntk", "deepseek_yarn"})
MAX_FACTOR = 4096


class Window(NamedTuple):
    """`max_model_len` in tokens, and whether the user insists on it."""

    max_model_len: int
    is_given: bool


def trained_window(
    max_position_embeddings: int, hf_config: Mapping[str, object], overrides: Mapping[str, object]
) -> int:
    """The window the model was trained for, with what `--hf-overrides` says of it.

    Raises:
        ConfigError: an overridden value is not a positive number.
    """
    window = max_position_embeddings
    if "max_position_embeddings" in overrides:
        given = overrides["max_position_embeddings"]
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise ConfigError(
                f"--hf-overrides.max_position_embeddings must be a positive integer, got {given!r}"
            )
        window = given
    if not {"rope_scaling", "rope_parameters"} & set(overrides):
        return window
    scaling = hf_config.get("rope_parameters") or hf_config.get("rope_scaling")
    if not isinstance(scaling, Mapping):
        return window
    kind = scaling.get("rope_type", scaling.get("type"))
    factor = scaling.get("factor", 1.0)
    if kind not in _LENGTHENING or isinstance(factor, bool):
        return window
    if not isinstance(factor, (int, float)) or not 1 <= factor <= MAX_FACTOR:
        raise ConfigError(
            f"--hf-overrides: rope scaling factor must be in [1, {MAX_FACTOR}], got {factor!r}"
        )
    original = scaling.get("original_max_position_embeddings", window)
    return int((original if isinstance(original, int) else window) * factor)


def choose_window(
    max_model_len: int | None,
    *,
    trained: int,
    sliding_window: int | None,
    disable_sliding_window: bool,
    allow_long: bool,
) -> Choice[Window]:
    """The window to serve.

    Args:
        max_model_len: as given; None: the trained one; -1 (`auto`): the largest that fits.
        trained: tokens.
        sliding_window: tokens, of the model's sliding layers, None if it has none.
        disable_sliding_window: all layers see everything, so the window ends where sliding begins.
        allow_long: OCTAVO_ALLOW_LONG_MAX_MODEL_LEN.

    Raises:
        ConfigError: longer than the model can serve.
    """
    limit, limited_by = trained, "the window the model was trained for"
    if disable_sliding_window and sliding_window is not None and sliding_window < trained:
        limit, limited_by = sliding_window, "the model's sliding window (--disable-sliding-window)"
    if max_model_len is None or max_model_len == AUTO_WINDOW:
        reason = f"max_model_len {limit}: {limited_by}"
        if max_model_len == AUTO_WINDOW:
            reason += ", or what fits in memory (--max-model-len auto)"
        return Choice(Window(limit, is_given=False), reason)
    if max_model_len <= limit:
        return Choice(Window(max_model_len, is_given=True))
    if limit == trained and allow_long:
        return Choice(
            Window(max_model_len, is_given=True),
            f"max_model_len {max_model_len} is above {limit}, {limited_by}; outputs beyond it are "
            "not to be trusted",
        )
    remedy = (
        "lower it, or set OCTAVO_ALLOW_LONG_MAX_MODEL_LEN=1 to try"
        if limit == trained
        else "lower it"
    )
    raise ConfigError(f"--max-model-len {max_model_len} is above {limit}, {limited_by}; {remedy}")
