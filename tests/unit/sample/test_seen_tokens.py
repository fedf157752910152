"""Distinct ids of a request and their counts."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from octavo.sample.seen_tokens import SeenTokens

token_ids = st.lists(st.integers(0, 2000), max_size=700)


@given(prompt=token_ids, before=token_ids, after=token_ids)
def test_ids_are_those_of_prompt_and_output_and_counts_those_of_the_output(
    prompt: list[int], before: list[int], after: list[int]
) -> None:
    seen = SeenTokens(prompt, before)
    for token_id in after:
        seen.append(token_id)
    counts = dict(zip(seen.ids.tolist(), seen.counts.tolist(), strict=True))
    assert len(seen.ids) == len(counts)
    assert set(counts) == set(prompt) | set(before) | set(after)
    assert Counter({k: v for k, v in counts.items() if v}) == Counter(before + after)
