"""`n` outputs of one prompt: n requests in the core, one request for the caller.

The prompt's blocks are shared through the prefix cache; the core does not know that the requests
belong together.

Runs in: API process. Owns: which child ids make up a request. Knows nothing of: the core, HTTP.
"""

from __future__ import annotations

import msgspec

from octavo.messages.engine import EngineCoreRequest

SEED_MODULUS = 2**64


def split(request: EngineCoreRequest, n: int) -> list[EngineCoreRequest]:
    """The requests for the core, in order of output index.

    With `n` == 1 that is the request itself. Else each child has its own id; a given seed becomes
    seed + index, so that outputs differ and each can be reproduced alone.
    """
    if n == 1:
        return [request]
    children = []
    for index in range(n):
        params = request.sampling_params
        seed = None if params.seed is None else (params.seed + index) % SEED_MODULUS
        child_params = msgspec.structs.replace(params, n=1, seed=seed)
        if index:  # prompt logprobs are the same for all: computed once
            child_params.prompt_logprobs = None
        children.append(
            msgspec.structs.replace(
                request,
                request_id=child_id(request.request_id, index),
                sampling_params=child_params,
            )
        )
    return children


def child_id(request_id: str, index: int) -> str:
    """Id of one child in the core."""
    return f"{index}_{request_id}"
