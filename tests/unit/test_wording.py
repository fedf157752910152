"""Foreign text inside sentences stays on one line and short."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.wording import first_line, printable, shown


@given(st.text(), st.integers(3, 40))
def test_any_text_becomes_printable_and_short(text: str, limit: int) -> None:
    clean = printable(text, limit)
    assert clean.isprintable()
    assert len(clean) <= limit
    if text.isprintable() and len(text) <= limit:
        assert clean == text


@given(st.one_of(st.text(), st.integers(), st.lists(st.text())))
def test_values_are_quoted_as_python_does(value: object) -> None:
    assert shown(value).isprintable()
    assert len(shown(value)) <= 60
    assert shown("a\nb") == "'a\\nb'"


def test_of_an_error_only_the_first_line_is_used() -> None:
    assert first_line(ValueError("\n one\ttwo\nthree")) == "one?two"
    assert first_line(ValueError()) == "ValueError"
