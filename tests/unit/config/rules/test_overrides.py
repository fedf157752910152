"""`--hf-overrides`."""

from __future__ import annotations

from octavo.config.rules.overrides import merge


def test_objects_are_merged_and_the_rest_is_replaced() -> None:
    base: dict[str, object] = {"a": {"b": 1, "c": [1]}, "d": 1, "e": {"x": 1}}
    merged = merge(base, {"a": {"c": [2]}, "e": None, "f": 3})
    assert merged == {"a": {"b": 1, "c": [2]}, "d": 1, "e": None, "f": 3}
    assert base == {"a": {"b": 1, "c": [1]}, "d": 1, "e": {"x": 1}}
