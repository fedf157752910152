"""Queue limits: what is refused with 503 before it costs anything.

Runs in: API process. Owns: counts of what was refused. Knows nothing of: the core, HTTP.
"""

from __future__ import annotations

from octavo.config.engine import SchedulerConfig
from octavo.errors import InvalidParameter, Overloaded

BUSY = "The engine is currently busy and cannot accept new requests"
RETRY_AFTER_S = 1
#: limits where the operator sets none, so that nobody fills the memory: about 1 GB of requests, or
#: of prompts (each of `n` outputs has its own copy)
MAX_REQS = 262_144
MAX_PROMPT_TOKENS = 16_777_216


class AdmissionControl:
    """Compares the load with `--max-num-queued-reqs` and `--max-num-queued-tokens`.

    The first counts requests in the core, waiting and running, each of a request's `n` outputs; the
    second counts prompt tokens of requests that are not through their prefill, `n` times.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._max_reqs = _or_default(config.max_num_queued_reqs, MAX_REQS)
        self._max_tokens = _or_default(config.max_num_queued_tokens, MAX_PROMPT_TOKENS)
        #: by the limit's name, as the metric `vllm:admission_rejections_total` has it
        self.num_rejected = {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0}

    def check_requests(self, num_unfinished: int, n: int) -> None:
        """Raises:
        Overloaded: `n` more requests would exceed the limit.
        """
        if num_unfinished + n > self._max_reqs:
            self._reject("max_num_queued_reqs", num_unfinished, n, self._max_reqs, "requests")

    def check_tokens(self, num_queued: int, num_prompt_tokens: int, n: int) -> None:
        """Raises:
        Overloaded: `n` copies of the prompt would exceed the backlog limit. An engine without
            backlog takes any prompt, so that none is refused for ever.
        InvalidParameter: there is no memory for so many copies.
        """
        num_tokens = n * num_prompt_tokens
        if num_tokens > MAX_PROMPT_TOKENS:
            raise InvalidParameter(
                f"n={n} outputs for a prompt of {num_prompt_tokens} tokens are too many at once; "
                f"ask for at most {MAX_PROMPT_TOKENS // num_prompt_tokens}. "
                f"(parameter=n, value={n})",
                param="n",
            )
        if num_queued and num_queued + num_tokens > self._max_tokens:
            self._reject(
                "max_num_queued_tokens", num_queued, num_tokens, self._max_tokens, "prompt tokens"
            )

    def _reject(self, limit: str, load: int, more: int, value: int, unit: str) -> None:
        self.num_rejected[limit] += 1
        raise Overloaded(
            f"{BUSY}: {load} {unit} are queued and {more} more exceed {limit}={value}. "
            "Please try again later or on a different instance.",
            retry_after_s=RETRY_AFTER_S,
        )


def _or_default(limit: int | None, default: int) -> int:
    return default if limit is None else limit
