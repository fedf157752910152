"""A logits processor as an operator would write it; named on command lines of tests."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.ops.step import Float32Array
from octavo.sample.logits_processor import LogitsProcessor, RequestLogitsProcessor
from octavo.sampling_params import SamplingParams


class Favour(LogitsProcessor):
    """`vllm_xargs: {"favoured_token": id}` makes that token certain; with `fails_after: n` it fails
    once n tokens are generated."""

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        token_id = (params.extra_args or {}).get("favoured_token")
        if token_id is not None and not isinstance(token_id, int):
            raise ValueError(f"favoured_token must be a token id, got {token_id!r}")

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        extra = params.extra_args or {}
        token_id = extra.get("favoured_token")
        if token_id is None:
            return None

        def process(output_token_ids: Sequence[int], logits: Float32Array) -> Float32Array:
            if len(output_token_ids) == extra.get("fails_after"):
                raise RuntimeError("as asked")
            logits[token_id] += 1000
            return logits

        return process
