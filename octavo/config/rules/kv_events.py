"""`--kv-events-config`: where events of the prefix cache are published.

Runs in: the API process, `LLM`. Owns: its keys and their limits. Knows nothing of: sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from octavo.config.engine import KVEventsConfig
from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError
from octavo.wording import shown

FLAG = "--kv-events-config"
PUBLISHERS = ("null", "zmq")
_WHOLE = {"buffer_steps": 0, "hwm": 0, "max_queue_size": 1}  # key -> smallest value
_MAX_WHOLE = 2**31 - 1
_KEYS = (
    "enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", *_WHOLE, "topic",
)  # fmt: skip


def choose_kv_events(
    given: Mapping[str, object] | None, *, use_int_block_hashes: bool, has_prefix_cache: bool
) -> Choice[KVEventsConfig | None]:
    """The configuration; None if nothing is published.

    Args:
        given: the flag's value.
        use_int_block_hashes: `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES`.
        has_prefix_cache: there is something to tell.

    Raises:
        ConfigError: a key is unknown or has a wrong value; names both.
    """
    options = {key: value for key, value in (given or {}).items() if value is not None}
    for key, value in options.items():
        _check(key, value)
    is_enabled = bool(options.pop("enable_kv_cache_events", False))
    publisher = options.pop("publisher", "zmq" if is_enabled else "null")
    if publisher == "null":
        return Choice(None)
    if not is_enabled:
        return Choice(
            None, f"no KV events: {FLAG} names a publisher, but enable_kv_cache_events is not true"
        )
    config = KVEventsConfig(
        use_int_block_hashes=use_int_block_hashes,
        **options,  # type: ignore[arg-type]
    )
    if not has_prefix_cache:
        return Choice(config, "there will be no KV events: --enable-prefix-caching is off")
    return Choice(
        config,
        f"KV events on {config.endpoint}: whoever can connect there reads the token ids of prompts",
    )


def _check(key: str, value: object) -> None:
    where = f"{FLAG}.{key}"
    if key not in _KEYS:
        raise ConfigError(f"{where} does not exist; the keys are {', '.join(_KEYS)}")
    if key == "enable_kv_cache_events":
        if not isinstance(value, bool):
            raise ConfigError(f"{where} must be true or false, got {shown(value)}")
    elif key in _WHOLE:
        low = _WHOLE[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{where} must be an integer, got {shown(value)}")
        if not low <= value <= _MAX_WHOLE:
            raise ConfigError(f"{where} must be between {low} and {_MAX_WHOLE}, got {value}")
    elif not isinstance(value, str):
        raise ConfigError(f"{where} must be a string, got {shown(value)}")
    elif key == "publisher" and value not in PUBLISHERS:
        raise ConfigError(f"{where} must be one of {', '.join(PUBLISHERS)}, got {shown(value)}")
    elif key.endswith("endpoint") and not _is_address(value):
        raise ConfigError(
            f"{where} must be an address such as tcp://*:5557 or ipc:///run/kv-events, "
            f"got {shown(value)}"
        )


def _is_address(text: str) -> bool:
    if re.fullmatch(r"(ipc|inproc)://.+", text):
        return True
    match = re.fullmatch(r"tcp://.+:(\d{1,5})", text)
    return match is not None and int(match[1]) <= 65535
