"""The merges of a vocabulary are those that trying every cut of every token gives."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from octavo.tokenizer.sentencepiece_merges import merges_from_scores

vocabularies = st.lists(st.text("ab\u2581\u00e9\U0001f600\ud800", max_size=7), unique=True)


def by_trying(tokens: list[str], scores: list[float]) -> list[tuple[str, str]]:
    known = dict(zip(tokens, scores, strict=True))
    ways = [
        (token[:cut], token[cut:])
        for token in tokens
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    return sorted(ways, key=lambda w: (-known[w[0] + w[1]], -len(w[0]), -len(w[1])))


@given(vocabularies)
def test_sorted_vocabularies(tokens: list[str]) -> None:
    assert merges_from_scores(tokens, None) == by_trying(tokens, [-i for i in range(len(tokens))])


@given(vocabularies, st.data())
def test_scored_vocabularies(tokens: list[str], data: st.DataObject) -> None:
    score = st.sampled_from([0.0, -1.5, -2.0, -1e9])
    scores = data.draw(st.lists(score, min_size=len(tokens), max_size=len(tokens)))
    found = merges_from_scores(tokens, scores)
    assert sorted(found) == sorted(by_trying(tokens, scores))
    known = dict(zip(tokens, scores, strict=True))
    ranks = [(-known[a + b], -len(a), -len(b)) for a, b in found]
    assert ranks == sorted(ranks)


def test_a_vocabulary_with_more_tokens_than_have_slots_of_their_own() -> None:
    letters, randomness = "abcdefghijklmnopqrstuvwxyz", random.Random(1)
    drawn = ["".join(randomness.choices(letters, k=randomness.randint(1, 4))) for _ in range(80000)]
    tokens = list(dict.fromkeys([*letters, *drawn]))
    scores = [-float(i) for i in range(len(tokens))]
    assert merges_from_scores(tokens, None) == by_trying(tokens, scores)
    assert merges_from_scores(tokens, scores) == by_trying(tokens, scores)
