"""Which grammar library there is.

Neighbours: `octavo/launch/structured_output.py`, `octavo/launch/grammar_check.py` (callers).
Runs in: every process that reads grammars. Owns: nothing. Knows nothing of: requests.
"""

from __future__ import annotations

from octavo.messages.grammar import Vocabulary
from octavo.structured_output.backend import GrammarBackend


def open_grammar_backend(vocabulary: Vocabulary) -> GrammarBackend:
    """The library over a vocabulary."""
    from octavo.structured_output.llguidance import LlguidanceBackend  # on first use

    return LlguidanceBackend(vocabulary)
