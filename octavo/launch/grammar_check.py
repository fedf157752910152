"""The check of grammars in front of the core.

Neighbours: `octavo/launch/front_end.py`, `octavo/launch/offline.py` (callers). Runs in: API
process, or the user's process offline. Owns: nothing. Knows nothing of: grammars, the core.
"""

from __future__ import annotations

from octavo.config.engine import EngineConfig
from octavo.frontend.grammar_checker import GrammarChecker, GrammarTokenizer
from octavo.launch.grammar_backend import open_grammar_backend


def make_grammar_checker(
    config: EngineConfig, tokenizer: GrammarTokenizer | None
) -> GrammarChecker:
    """The check of a request's grammar before the core sees it."""
    return GrammarChecker(
        config.structured_outputs,
        tokenizer,
        vocab_size=config.model.vocab_size,
        eos_token_ids=config.model.eos_token_ids,
        open_backend=open_grammar_backend,
    )
