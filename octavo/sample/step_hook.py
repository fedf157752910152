"""The logits processors of one step: which request's are called on which row of logits.

Runs in: workers, in steps that have a request with processors. Knows nothing of: devices, text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from octavo.ops.logits_hook import RowsFailed
from octavo.ops.step import Float32Array
from octavo.sample.logits_processor import RequestProcessors

logger = logging.getLogger(__name__)


class StepHook:
    """`SamplingArrays.logits_hook` of a step.

    Args:
        row_to_processors: by logit row; rows that are missing are left alone.
    """

    def __init__(self, row_to_processors: Mapping[int, RequestProcessors]) -> None:
        self._row_to_processors = row_to_processors

    def __call__(self, first_row: int, logits: Float32Array) -> None:
        """Changes logits [rows, vocab_size], the step's rows from `first_row` on.

        Raises:
            RowsFailed: of processors that raised; the other rows are done.
        """
        errors: dict[int, BaseException] = {}
        for index, row_logits in enumerate(logits):
            processors = self._row_to_processors.get(first_row + index)
            if processors is None:
                continue
            try:
                processors.apply(row_logits)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # foreign code: it may exit, or panic in a library
                logger.exception("A logits processor failed.")
                errors[first_row + index] = error
        if errors:
            raise RowsFailed(errors)
