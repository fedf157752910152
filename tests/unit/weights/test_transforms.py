"""Row orders between formats are inverses of what the converter does."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.weights.transforms import GGUF_ARCHITECTURES, Rows, interleaved_to_half_split


@pytest.mark.parametrize(("num_heads", "head_dim"), [(1, 2), (4, 8), (3, 64)])
def test_permutation_undoes_the_converters_reordering(num_heads: int, head_dim: int) -> None:
    hf = np.arange(num_heads * head_dim)
    # llama.cpp, convert_hf_to_gguf.py, LlamaModel.permute
    stored = hf.reshape(num_heads, 2, head_dim // 2).swapaxes(1, 2).reshape(-1)
    assert stored[interleaved_to_half_split(num_heads, head_dim)].tolist() == hf.tolist()


@pytest.mark.parametrize("name", GGUF_ARCHITECTURES)
def test_rules_name_each_tensor_once(name: str) -> None:
    rules = GGUF_ARCHITECTURES[name].rules
    assert len({rule.stored_name for rule in rules}) == len(rules)
    assert len({rule.hf_name for rule in rules}) == len(rules)
    assert all(rule.stored_name.count("{}") == rule.hf_name.count("{}") for rule in rules)


def test_gemmas_norms_are_stored_one_more_than_models_see() -> None:
    for rule in GGUF_ARCHITECTURES["gemma3"].rules:
        assert rule.value_offset == (-1.0 if "norm" in rule.stored_name else 0.0), rule


@pytest.mark.parametrize("name", sorted(set(GGUF_ARCHITECTURES) - {"llama"}))
def test_only_llamas_rows_are_in_another_order(name: str) -> None:
    assert {rule.rows for rule in GGUF_ARCHITECTURES[name].rules} == {Rows.AS_STORED}
