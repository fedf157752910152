"""Loading logits processors and calling those of one request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from octavo.errors import ConfigError
from octavo.ops.step import Float32Array
from octavo.sample.logits_processor import (
    LogitsProcessor,
    RequestProcessors,
    load_logits_processors,
    processor_name,
)
from tests.fakes.processors import Favour

NAME = "tests.fakes.processors:Favour"


def test_classes_are_found_by_their_names_and_names_by_their_classes() -> None:
    assert load_logits_processors([NAME]) == [Favour]
    assert processor_name(Favour) == processor_name(NAME) == NAME


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.fakes.processors", "must be module:Class"),
        ("no_such_module:X", r"cannot be imported \(No module named 'no_such_module'\)"),
        ("tests.fakes.processors:Nobody", "cannot be imported"),
        ("json:dumps", "must be a class derived from"),
        ("json:JSONEncoder", "must be a class derived from"),
    ],
)
def test_what_is_no_processor_is_refused_with_its_name(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_logits_processors([name])
    assert name in caught.value.message


def test_a_class_that_has_no_name_of_its_own_is_refused() -> None:
    class Local(LogitsProcessor):
        pass

    with pytest.raises(ConfigError, match="cannot be imported"):
        processor_name(Local)


def test_processors_run_in_order_and_see_the_tokens_so_far() -> None:
    seen = []

    def with_output(output: Sequence[int], logits: Float32Array) -> None:
        seen.append(list(output))
        logits[0] += 1

    def with_prompt(
        prompt: Sequence[int], output: Sequence[int], logits: Float32Array
    ) -> Float32Array:
        seen.append([*prompt, *output])
        return logits * 2

    under_test = RequestProcessors([with_output, with_prompt], [7, 8], [1])
    logits = np.array([1, 2], np.float32)
    under_test.apply(logits)
    assert logits.tolist() == [4, 4]
    under_test.append(5)
    under_test.apply(logits)
    assert seen == [[1], [7, 8, 1], [1, 5], [7, 8, 1, 5]]


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (np.float32(3), "shape"),
        (np.zeros(1, np.float32), "shape"),
        (np.zeros((1, 2), np.float32), "shape"),
        (np.zeros(3, np.float32), "shape"),
        (np.zeros(2, np.complex64), "complex64 values"),
        (["x", "y"], "values, must be real"),
        ([None, 1], "values, must be real"),
    ],
)
def test_what_is_no_row_of_logits_is_refused(returned: object, error: str) -> None:
    logits = np.array([1, 2], np.float32)
    under_test = RequestProcessors([lambda output, logits: returned], [7], [])  # type: ignore[list-item,return-value]
    with pytest.raises((ValueError, TypeError), match=error):
        under_test.apply(logits)
    assert logits.tolist() == [1, 2]


@pytest.mark.parametrize("returned", [[3, 4], np.array([3, 4]), np.array([3.0, 4.0])])
def test_any_real_numbers_may_be_returned(returned: object) -> None:
    logits = np.array([1, 2], np.float32)
    RequestProcessors([lambda output, logits: returned], [7], []).apply(logits)  # type: ignore[list-item,return-value]
    assert logits.tolist() == [3, 4]
