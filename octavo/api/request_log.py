"""`--enable-log-requests` and `--enable-log-outputs`: what was asked and answered, in the log.

Runs in: API process. Owns: the wording and the length limit. Knows nothing of: wire formats.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from octavo.frontend.prompt import Prompt, TextPrompt
from octavo.sampling_params import BeamSearchParams, SamplingParams

logger = logging.getLogger(__name__)


class RequestLog:
    """Logs requests and their outputs, each only if asked to.

    Args:
        inputs: log prompts and parameters.
        outputs: log generated text.
        max_len: characters (or token ids) shown of each; None: all.
    """

    def __init__(self, *, inputs: bool, outputs: bool, max_len: int | None) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._max_len = max_len

    def log_input(
        self, request_id: str, prompt: Prompt, params: SamplingParams | BeamSearchParams
    ) -> None:
        """One line per prompt."""
        if not self._inputs:
            return
        if isinstance(prompt, TextPrompt):
            shown = f"prompt: {prompt.text[: self._max_len]!r}"
        else:
            shown = f"prompt_token_ids: {list(prompt.token_ids[: self._max_len])}"
        logger.info("Received request %s: %s, params: %s", request_id, shown, params)

    def log_output(self, request_id: str, text: Callable[[], str]) -> None:
        """One line per answered request."""
        if self._outputs:
            logger.info("Generated response %s: output: %r", request_id, text()[: self._max_len])
