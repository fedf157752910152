"""`thinking_token_budget`: after so many tokens of reasoning, the model must go on to its answer.

The core ends the reasoning where a grammar waits for its end (`reasoning_gate.py`); a request that
has no grammar gets one that takes any tokens.

Neighbours: `octavo/api/openai/reply_reading.py` (caller), `octavo/api/openai/completions.py`.
Runs in: API process, event loop. Owns: the meaning of the field. Knows nothing of: templates, HTTP.
"""

from __future__ import annotations

import msgspec

from octavo.api.reasoning_tokens import TokenNames
from octavo.errors import InvalidParameter, UnsupportedFeature
from octavo.sampling_params import ReasoningMarks, SamplingParams, StructuredOutputsParams

FIELD = "thinking_token_budget"
_ANY_TOKENS = StructuredOutputsParams(grammar="%llguidance {}\nstart: <[*]>*", origin=FIELD)


def checked_budget(value: int | None) -> int | None:
    """Tokens; None: no limit.

    Raises:
        InvalidParameter: it is below -1.
    """
    if value is not None and value < -1:
        raise InvalidParameter(
            f"{FIELD} must be a non-negative integer or -1 for no limit, got {value}. "
            f"(parameter={FIELD}, value={value})",
            param=FIELD,
        )
    return None if value == -1 else value


def refuse_budget(value: int | None, reason: str) -> None:
    """For requests whose reasoning cannot be limited.

    Raises:
        UnsupportedFeature: they have a limit.
    """
    if checked_budget(value) is not None:
        raise UnsupportedFeature(f"{FIELD} {reason}. (parameter={FIELD})", param=FIELD)


def keep_budget(
    params: SamplingParams,
    budget: int,
    marks: ReasoningMarks,
    other_ends: tuple[str, ...],
    tokens: TokenNames | None,
) -> None:
    """Adds the limit to `params`, whose grammar, if there is one, holds after the reasoning.

    Args:
        marks: of the reasoning.
        other_ends: what else ends it; only where no grammar begins there.
        tokens: what tokens say; None: nobody knows.

    Raises:
        UnsupportedFeature: where the reasoning begins cannot be seen.
    """
    begins = [
        mark for mark in marks.begin if tokens is None or tokens.token_to_id(mark) is not None
    ]
    if not (marks.is_open or begins):
        refuse_budget(budget, "needs a mark that is one token where the reasoning begins")
    marks = msgspec.structs.replace(marks, budget=budget)
    if params.structured_outputs is None:
        params.structured_outputs = _ANY_TOKENS
        marks = msgspec.structs.replace(marks, end=[*marks.end, *other_ends], is_free=True)
    params.reasoning = marks
