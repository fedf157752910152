"""A step's hook on logits, run so that what it raises fails its rows and not the step.

Runs in: workers, when logits processors are configured. Knows nothing of: requests, devices.
"""

from __future__ import annotations

import numpy as np

from octavo.ops.step import Float32Array, LogitsHook, SampleOutputArrays


class GuardedHook:
    """The calls of one step's hook. Backends call it per chunk of rows, then `finish`.

    Args:
        hook: the caller's.
        output: gets the status of rows whose call failed, and the first error.
    """

    def __init__(self, hook: LogitsHook, output: SampleOutputArrays) -> None:
        self._hook = hook
        self._output = output
        self._failed: list[slice] = []
        self._interrupt: BaseException | None = None
        output.hook_error = None

    def __call__(self, first_row: int, logits: Float32Array) -> None:
        """Lets the hook change `logits` [rows, vocab_size], the step's rows from `first_row` on."""
        try:
            self._hook(first_row, logits)
        except Exception as error:
            self._fail(first_row, logits)
            self._output.hook_error = self._output.hook_error or error
        except BaseException as interrupt:  # no exception may cross the native library
            self._fail(first_row, logits)
            self._interrupt = interrupt

    def finish(self) -> None:
        """To be called when the sample segment has ended.

        Raises:
            BaseException: the hook was interrupted (Ctrl-C).
        """
        for rows in self._failed:
            self._output.status[rows] = SampleOutputArrays.HOOK_FAILED
        if self._interrupt is not None:
            raise self._interrupt

    def _fail(self, first_row: int, logits: Float32Array) -> None:
        # the sampler draws nothing from a row that is not finite
        logits.fill(np.nan)
        self._failed.append(slice(first_row, first_row + len(logits)))
