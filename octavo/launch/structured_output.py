"""Which grammar library there is, for the core and for the front end.

Neighbours: `octavo/launch/core.py`, `octavo/launch/front_end.py`, `octavo/launch/offline.py`
(callers). Runs in: EngineCore, or
the user's process offline. Owns: nothing. Knows nothing of: grammars.
"""

from __future__ import annotations

from octavo.config.engine import EngineConfig
from octavo.frontend.grammar_checker import GrammarChecker, GrammarTokenizer
from octavo.messages.grammar import Vocabulary
from octavo.structured_output.backend import GrammarBackend
from octavo.structured_output.manager import StructuredOutputManager
from octavo.structured_output.request_grammars import RequestGrammars


def make_structured_output(config: EngineConfig) -> StructuredOutputManager:
    """The grammars of an engine. Nothing is loaded before a request wants one."""
    return RequestGrammars(_open_llguidance)


def make_grammar_checker(
    config: EngineConfig, tokenizer: GrammarTokenizer | None
) -> GrammarChecker:
    """The check of a request's grammar before the core sees it."""
    return GrammarChecker(
        config.structured_outputs,
        tokenizer,
        vocab_size=config.model.vocab_size,
        eos_token_ids=config.model.eos_token_ids,
        open_backend=_open_llguidance,
    )


def _open_llguidance(vocabulary: Vocabulary) -> GrammarBackend:
    from octavo.structured_output.llguidance import LlguidanceBackend  # on first use

    return LlguidanceBackend(vocabulary)
