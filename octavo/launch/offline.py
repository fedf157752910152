"""The engine of `LLM`: core, worker and front end in the caller's process, no sockets.

Neighbours: `octavo/llm.py` (caller). Runs in: the user's process. Owns: nothing.
Knows nothing of: progress bars, HTTP.
"""

from __future__ import annotations

import logging

from octavo.config.args import EngineArgs
from octavo.config.engine import EngineConfig
from octavo.core.engine_core import EngineCore
from octavo.envs import read_environ
from octavo.frontend.core_client import InprocClient
from octavo.frontend.offline_engine import OfflineEngine
from octavo.launch.chat_template import chat_template_of
from octavo.launch.engine_config import find_engine_config
from octavo.launch.executors import make_executor
from octavo.launch.grammar_check import make_grammar_checker
from octavo.launch.kv_events import make_kv_event_publisher
from octavo.launch.structured_output import make_structured_output
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.tokenizer import load_tokenizer

logger = logging.getLogger(__name__)


def build_in_process(args: EngineArgs) -> tuple[OfflineEngine, ChatTemplate | None]:
    """A loaded engine and the model's chat template, if it has one.

    Raises:
        ConfigError: an option does not fit, or there is no such model.
        StartupError: the model cannot be loaded.
    """
    env = read_environ()
    for warning in (*args.warnings, *env.warnings):
        logger.warning("%s", warning)
    return engine_of(find_engine_config(args, env))


def engine_of(config: EngineConfig) -> tuple[OfflineEngine, ChatTemplate | None]:
    """The same for a configuration that is there already.

    Raises:
        ConfigError: the chat template is broken.
        StartupError: the model cannot be loaded.
    """
    for note in config.notes:
        logger.info("%s", note)
    model = config.model
    tokenizer = None if model.skip_tokenizer_init else load_tokenizer(model.tokenizer_path)
    core = EngineCore(
        config,
        make_executor(config),
        structured_output=make_structured_output(config),
        kv_events=make_kv_event_publisher(config),
    )
    engine = OfflineEngine(
        config,
        tokenizer,
        InprocClient(core),
        core.ready,
        grammars=make_grammar_checker(config, tokenizer),
    )
    return engine, chat_template_of(model, tokenizer)
