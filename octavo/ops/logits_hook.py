"""A step's hook on logits, run so that what it raises fails its rows and not the step.

Runs in: workers, when logits processors are configured. Knows nothing of: requests, devices.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from octavo.ops.step import Float32Array, LogitsHook, SampleOutputArrays


class RowsFailed(Exception):
    """Raised by a hook that has done what it could: only these rows failed.

    Args:
        errors: by logit row of the step.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(f"{len(errors)} rows failed")
        self.errors = errors


class GuardedHook:
    """The calls of one step's hook. Backends call it per chunk of rows, then `finish`.

    Args:
        hook: the caller's.
        output: gets the status of rows whose call failed, and the errors.
    """

    def __init__(self, hook: LogitsHook, output: SampleOutputArrays) -> None:
        self._hook = hook
        self._output = output
        self._interrupt: BaseException | None = None
        output.hook_errors = {}

    def __call__(self, first_row: int, logits: Float32Array) -> None:
        """Lets the hook change `logits` [rows, vocab_size], the step's rows from `first_row` on."""
        try:
            self._hook(first_row, logits)
        except RowsFailed as failed:
            self._fail(failed.errors, first_row, logits)
        except Exception as error:
            rows = range(first_row, first_row + len(logits))
            self._fail(dict.fromkeys(rows, error), first_row, logits)
        except BaseException as interrupt:  # no exception may cross the native library
            logits.fill(np.nan)
            self._interrupt = interrupt

    def finish(self) -> None:
        """To be called when the sample segment has ended.

        Raises:
            BaseException: the hook was interrupted (Ctrl-C).
        """
        for row in self._output.hook_errors:
            self._output.status[row] = SampleOutputArrays.HOOK_FAILED
        if self._interrupt is not None:
            raise self._interrupt

    def _fail(
        self, errors: Mapping[int, BaseException], first_row: int, logits: Float32Array
    ) -> None:
        # the sampler draws nothing from a row that is not finite
        logits[[row - first_row for row in errors]] = np.nan
        self._output.hook_errors.update(errors)
