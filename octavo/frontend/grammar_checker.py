"""Structured output on this side of the core: checked before anything is sent.

A grammar that cannot be served is the client's mistake and is refused here, with the place named;
what passes is sent as text, and the core compiles it with the real vocabulary. Checking takes from
half a millisecond to a second, so servers do it in a thread (`octavo/frontend/async_llm.py`).

Uses: `octavo/structured_output`. Runs in: API process, or the user's process offline.
Owns: the grammars found right lately. Knows nothing of: requests, HTTP, the core.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from octavo.config.engine import StructuredOutputsConfig
from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar, Vocabulary

if TYPE_CHECKING:
    from octavo.sampling_params import StructuredOutputsParams
    from octavo.structured_output.backend import GrammarBackend

MAX_REMEMBERED_CHARACTERS = 16_000_000


class GrammarTokenizer(Protocol):
    """What is needed of a tokenizer."""

    @property
    def special_ids(self) -> Collection[int]: ...

    @property
    def vocab_size(self) -> int: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def id_to_token(self, token_id: int) -> str | None: ...


class GrammarChecker:
    """Makes the grammar of a request. Any thread.

    Args:
        config: what the operator has set for all requests.
        tokenizer: None if there is none: no request can have a grammar.
        vocab_size: columns of the logits.
        eos_token_ids: what ends an output.
        open_backend: opens the library with a vocabulary of bytes; called on first use.
    """

    def __init__(
        self,
        config: StructuredOutputsConfig,
        tokenizer: GrammarTokenizer | None,
        *,
        vocab_size: int,
        eos_token_ids: Sequence[int],
        open_backend: Callable[[Vocabulary], GrammarBackend],
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._open_backend = open_backend
        self._lock = threading.Lock()
        self._backend: GrammarBackend | None = None
        self._special_tokens: frozenset[str] = frozenset()
        self._right: OrderedDict[Grammar, None] = OrderedDict()  # the oldest first
        self._right_characters = 0

    def vocabulary(self) -> Vocabulary:
        """The tokens, for the core; takes a fifth of a second and more."""
        from octavo.structured_output.vocabulary import make_vocabulary  # on first use

        tokenizer = self._need_tokenizer("structured_outputs")
        return make_vocabulary(tokenizer, self._vocab_size, self._eos_token_ids)

    def check(self, params: StructuredOutputsParams) -> Grammar:
        """The grammar of a request.

        Raises:
            InvalidParameter: it cannot be served; `param` names the field.
        """
        from octavo.structured_output.grammar_text import make_grammar  # on first use
        from octavo.structured_output.unfit import explain

        self._need_tokenizer(params.origin)
        with self._lock:
            backend = self._open()
        written = make_grammar(params, self._config, self._special_tokens.__contains__)
        grammar = written.grammar
        with self._lock:
            if grammar in self._right:
                self._right.move_to_end(grammar)
                return grammar
        explain(backend, grammar, params.origin, schemas=written.schemas)
        with self._lock:
            self._remember(grammar)
        return grammar

    def _open(self) -> GrammarBackend:
        if self._backend is None:
            from octavo.structured_output.vocabulary import byte_vocabulary

            assert self._tokenizer is not None
            names = map(self._tokenizer.id_to_token, self._tokenizer.special_ids)
            self._special_tokens = frozenset(name for name in names if name)
            self._backend = self._open_backend(byte_vocabulary(sorted(self._special_tokens)))
        return self._backend

    def _remember(self, grammar: Grammar) -> None:
        if grammar not in self._right:
            self._right[grammar] = None
            self._right_characters += len(grammar.text)
        while self._right_characters > MAX_REMEMBERED_CHARACTERS:
            oldest, _ = self._right.popitem(last=False)
            self._right_characters -= len(oldest.text)

    def _need_tokenizer(self, field: str) -> GrammarTokenizer:
        if self._tokenizer is None:
            raise InvalidParameter(
                f"{field} needs a tokenizer and the server runs without one "
                "(--skip-tokenizer-init).",
                param=field,
            )
        if not self._eos_token_ids:
            raise InvalidParameter(
                f"{field} needs a token that ends an output, and the model names none.",
                param=field,
            )
        return self._tokenizer
