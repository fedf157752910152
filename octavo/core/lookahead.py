"""May a request's next token be scheduled before its last one is known?

With a depth of more than one, a step is scheduled while the token of the step before is still being
computed. The backend finds that token by itself, so most requests do not care. Some must see it
first, because what they allow or prefer next is made from it on the host; they sit out until it is
known. Conditions that *end* a request do not count: one token too many is computed and dropped.

Called by: `octavo/core/scheduler.py`. Runs in: EngineCore. Owns: this rule.
Knows nothing of: steps, blocks, queues.
"""

from __future__ import annotations

from octavo.sampling_params import SamplingParams


def looks_back(params: SamplingParams) -> bool:
    """True if sampling depends on the tokens generated before."""
    has_penalties = (
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )
    has_bad_phrases = any(len(word) > 1 for word in params.bad_words_token_ids or ())
    return has_penalties or has_bad_phrases or params.min_tokens > 0
