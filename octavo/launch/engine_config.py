"""From flags to the engine's configuration: find the model, read its facts and the device's.

Neighbours: `octavo/launch/serve.py`, `octavo/launch/offline.py` (callers). Runs in: API process, or
the user's process offline. Owns: nothing. Knows nothing of: processes, HTTP.
"""

from __future__ import annotations

import msgspec

from octavo.config.args import EngineArgs
from octavo.config.engine import EngineConfig
from octavo.config.resolve import resolve_engine
from octavo.envs import Env
from octavo.models.registry import check_architecture
from octavo.platforms.cpu import cpu_facts
from octavo.weights.facts import read_facts
from octavo.weights.hub import DEFAULT_MODEL_NAME, hub_settings, locate


def find_engine_config(
    args: EngineArgs, env: Env, *, chat_template: str | None = None
) -> EngineConfig:
    """The engine's configuration; fetches the model from the hub if it is not on this machine.

    Raises:
        ConfigError: no such model, an unknown architecture, or flags that do not fit it.
        StartupError: the hub or the disk failed.
    """
    settings = hub_settings(env, download_dir=args.download_dir, token=args.hf_token)
    path = locate(
        args.model, settings, revision=args.revision, ignore_patterns=args.ignore_patterns
    )
    tokenizer_path = None
    if args.tokenizer is not None and args.tokenizer != args.model:
        tokenizer_path = locate(args.tokenizer, settings, revision=args.tokenizer_revision)
    # the core would find out as well, but only after it has started
    facts = read_facts(path, check_architecture=check_architecture)
    if args.model is None:  # the file names itself after its training run
        facts = msgspec.structs.replace(facts, default_name=DEFAULT_MODEL_NAME)
    config = resolve_engine(
        args,
        env,
        facts,
        cpu_facts(),
        chat_template=chat_template,
        tokenizer_path=tokenizer_path,
    )
    check_architecture(config.model.architecture)  # --hf-overrides may have changed it
    return config
