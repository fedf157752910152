"""Counting tokens for `usage`: each prompt once, the outputs of all its choices; and times.

Runs in: API process. Owns: the counts of one HTTP request. Knows nothing of: text, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from octavo import outputs
from octavo.api.openai.protocol import (
    CompletionTokensDetails,
    PromptTokensDetails,
    RequestMetrics,
    StreamOptions,
    Usage,
)
from octavo.api.openai.request_metrics import request_metrics
from octavo.outputs import RequestOutput


class UsageCounter:
    """Counts of one HTTP request.

    Args:
        show_cached: report tokens found in the prefix cache (`--enable-prompt-tokens-details`).
        show_reasoning: report tokens of reasoning.
        show_metrics: report times (`--enable-per-request-metrics`); of one output only.
    """

    def __init__(
        self, *, show_cached: bool, show_reasoning: bool = False, show_metrics: bool = False
    ) -> None:
        self._show_cached = show_cached
        self._show_reasoning = show_reasoning
        self._show_metrics = show_metrics
        self._times: outputs.RequestMetrics | None = None
        self._num_prompt_tokens: list[int] = []
        self._num_cached_tokens: list[int] = []

    def begin(self, prompt_token_ids: Sequence[list[int]]) -> None:
        """Takes the prompts."""
        self._num_prompt_tokens = [len(ids) for ids in prompt_token_ids]
        self._num_cached_tokens = [0] * len(prompt_token_ids)

    def see(self, prompt_index: int, output: RequestOutput) -> None:
        """Takes what an output says of its prompt, and its times."""
        if self._show_metrics:
            self._times = output.metrics
        if output.num_cached_tokens is not None:
            self._num_cached_tokens[prompt_index] = output.num_cached_tokens

    @property
    def metrics(self) -> RequestMetrics | UnsetType:
        """How long it took, if that is to be told."""
        return UNSET if self._times is None else request_metrics(self._times)

    def total(self, num_output_tokens: int, num_reasoning_tokens: int = 0) -> Usage:
        """Usage of the whole request so far."""
        return self._usage(
            sum(self._num_prompt_tokens),
            num_output_tokens,
            sum(self._num_cached_tokens),
            num_reasoning_tokens,
        )

    def of_choice(
        self, prompt_index: int, num_output_tokens: int, num_reasoning_tokens: int = 0
    ) -> Usage:
        """Usage of one choice so far (`continuous_usage_stats`)."""
        return self._usage(
            self._num_prompt_tokens[prompt_index],
            num_output_tokens,
            self._num_cached_tokens[prompt_index],
            num_reasoning_tokens,
        )

    def _usage(
        self, num_prompt: int, num_output: int, num_cached: int, num_reasoning: int
    ) -> Usage:
        usage = Usage(num_prompt, num_prompt + num_output, num_output)
        if self._show_reasoning:
            usage.completion_tokens_details = CompletionTokensDetails(num_reasoning)
        if self._show_cached:
            usage.prompt_tokens_details = PromptTokensDetails(num_cached)
        return usage


def wants_usage(options: StreamOptions | None, *, force: bool) -> tuple[bool, bool]:
    """Whether a stream ends with a usage chunk, and whether each chunk carries usage.

    Args:
        options: `stream_options` of the request.
        force: `--enable-force-include-usage`.
    """
    if options is None:
        return force, False
    at_end = options.include_usage or force
    return at_end, at_end and options.continuous_usage_stats
