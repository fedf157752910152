"""All flags together: groups in the order of `--help`, and look-up by any spelling.

Runs in: the command line, `EngineArgs`. Owns: `GROUPS`, `FLAGS`. Knows nothing of: parsing.
"""

from __future__ import annotations

from octavo.config.flags import (
    attention,
    cache,
    engine,
    frontend,
    load,
    lora,
    model,
    multimodal,
    observability,
    offload,
    old,
    own,
    parallel,
    scheduler,
    top_level,
)
from octavo.config.flags.flag import REMOVED, Flag

#: group -> its flags; the name vLLM prints in `--help`
GROUPS: dict[str, tuple[Flag, ...]] = {
    top_level.GROUP: top_level.FLAGS,
    frontend.GROUP: frontend.FLAGS,
    model.GROUP: model.FLAGS,
    load.GROUP: load.FLAGS,
    attention.ATTENTION_GROUP: attention.ATTENTION_FLAGS,
    attention.MAMBA_GROUP: attention.MAMBA_FLAGS,
    attention.STRUCTURED_GROUP: attention.STRUCTURED_FLAGS,
    cache.GROUP: cache.FLAGS,
    scheduler.GROUP: scheduler.FLAGS,
    parallel.GROUP: parallel.FLAGS,
    lora.GROUP: lora.FLAGS,
    observability.OBSERVABILITY_GROUP: observability.OBSERVABILITY_FLAGS,
    observability.LOGGING_GROUP: observability.LOGGING_FLAGS,
    offload.OFFLOAD_GROUP: offload.OFFLOAD_FLAGS,
    offload.COMPILATION_GROUP: offload.COMPILATION_FLAGS,
    offload.KERNEL_GROUP: offload.KERNEL_FLAGS,
    multimodal.GROUP: multimodal.FLAGS,
    engine.GROUP: engine.FLAGS,
    own.GROUP: own.FLAGS,
    old.GROUP: old.FLAGS,
}


def _named() -> tuple[Flag, ...]:
    for group, members in GROUPS.items():
        for member in members:
            member.group = group
    return tuple(member for members in GROUPS.values() for member in members)


FLAGS = _named()

#: the positional argument; it has no dashes on the command line
POSITIONAL = "model-tag"

#: name or alias, with dashes -> flag
BY_NAME: dict[str, Flag] = {
    name: flag for flag in FLAGS for name in (flag.name, *flag.aliases) if name != POSITIONAL
}

#: short form without its dash (tp, asc, O) -> flag
BY_SHORT: dict[str, Flag] = {short: flag for flag in FLAGS for short in flag.short}

#: field name (underscores) -> flag
BY_FIELD: dict[str, Flag] = {flag.field: flag for flag in FLAGS}

#: what a user may mean by a misspelt name
CURRENT_NAMES = tuple(name for name, flag in BY_NAME.items() if flag.status != REMOVED)
