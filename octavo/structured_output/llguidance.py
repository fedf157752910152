"""llguidance through its C interface: the grammar library.

The wheel's one shared object holds the library's C interface beside the Python one. It is used here
because its calls do not hold the interpreter's lock, above all the one that builds the token trie
(0.1 s for 49,000 tokens, 1 s for 262,000), which would stop every running stream; and loading it
takes 1 ms, importing the package 100. Structures are those of `llguidance.h` of version 1.9;
`docs/decisions/0014-grammars.md`.

Runs in: EngineCore (real vocabulary), the API process (bytes as vocabulary). Owns: the library's
objects. Knows nothing of: requests, steps, JSON schemas.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.errors import EngineError
from octavo.messages.grammar import Grammar, Vocabulary
from octavo.platforms.deep_stack import on_deep_stack
from octavo.structured_output.backend import GrammarError, MaskQueue, Matcher
from octavo.wording import printable

_ERROR_BYTES = 2048
#: The library descends into rules, definitions and nested schemas, and ends the process where its
#: stack ends. Measured: 2 to 10 kB a level and at most 550 bytes per character of a grammar, of
#: which there are at most 262,144 (`grammar_text.py`).
STACK_BYTES = 256 << 20

_CHARACTER = rb'[^"\\\x00-\x1F\x7F]'
#: Sets of tokens that are taken or left as a whole: text of a JSON string of up to so many
#: characters. With the library's own three (10, 30, any) a mask within a string of limited length
#: takes four times as long.
_LENGTHS = (2, 4, 6, 8, 10, 12, 14, 16, 20, 30)
_SLICES = [*(_CHARACTER + b"{1,%d}" % most for most in _LENGTHS), _CHARACTER + b"+"]

_P, _SIZE, _U64, _U32 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint32
_BOOL, _STR, _INT = ctypes.c_bool, ctypes.c_char_p, ctypes.c_int32


class _TokenizerInit(ctypes.Structure):
    """LlgTokenizerInitV2."""

    _fields_ = (
        ("struct_size", _SIZE),
        ("vocab_size", _U32),
        ("tok_eos", _U32),
        ("token_lens", _STR),
        ("token_bytes", _STR),
        ("tokenizer_json", _STR),
        ("tokenize_assumes_string", _BOOL),
        ("tokenize_fn", _P),
        ("use_approximate_greedy_tokenize_fn", _BOOL),
        ("tokenize_user_data", _P),
        ("slices", ctypes.POINTER(_STR)),
        ("tok_eos_extra", ctypes.POINTER(_U32)),
        ("tok_eos_extra_count", _U32),
    )


class _ParserLimits(ctypes.Structure):
    """LlgParserLimits."""

    _fields_ = (
        ("max_items_in_row", _SIZE),
        ("initial_lexer_fuel", _U64),
        ("step_lexer_fuel", _U64),
        ("step_max_items", _SIZE),
        ("max_lexer_states", _SIZE),
        ("max_grammar_size", _SIZE),
        ("precompute_large_lexemes", _BOOL),
        ("verbose_errors", _BOOL),
    )


class _ConstraintInit(ctypes.Structure):
    """LlgConstraintInit."""

    _fields_ = (
        ("tokenizer", _P),
        ("log_buffer_level", _U32),
        ("log_stderr_level", _U32),
        ("ff_tokens_ok", _BOOL),
        ("backtrack_ok", _BOOL),
        ("limits", _ParserLimits),
    )


_FUNCTIONS: dict[str, tuple[object, tuple[object, ...]]] = {
    "llg_get_version": (_STR, ()),
    "llg_new_tokenizer_v2": (_P, (ctypes.POINTER(_TokenizerInit), _STR, _SIZE)),
    "llg_free_tokenizer": (None, (_P,)),
    "llg_constraint_init_set_defaults": (None, (ctypes.POINTER(_ConstraintInit), _P)),
    "llg_validate_grammar": (
        _INT,
        (ctypes.POINTER(_ConstraintInit), _STR, _STR, _STR, _SIZE),
    ),
    "llg_new_matcher": (_P, (ctypes.POINTER(_ConstraintInit), _STR, _STR)),
    "llg_clone_matcher": (_P, (_P,)),
    "llg_free_matcher": (None, (_P,)),
    "llg_matcher_get_error": (_STR, (_P,)),
    "llg_matcher_is_error": (_BOOL, (_P,)),
    "llg_matcher_is_stopped": (_BOOL, (_P,)),
    "llg_matcher_compute_mask_into": (_INT, (_P, _P, _SIZE)),
    "llg_matcher_consume_token": (_INT, (_P, _U32)),
    "llg_matcher_validate_tokens": (_INT, (_P, ctypes.POINTER(_U32), _SIZE)),
    "llg_matcher_reset": (_INT, (_P,)),
}


@functools.cache
def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("llguidance")
    places: Sequence[str] = () if spec is None else spec.submodule_search_locations or ()
    paths = [path for place in places for path in Path(place).glob("_lib*.so")]
    if not paths:
        raise EngineError(
            "Structured output needs the package llguidance, which is not installed: run "
            "pip install 'llguidance>=1.9.1,<1.10'."
        )
    library = ctypes.CDLL(str(paths[0]))
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise EngineError(
                f"The installed llguidance has no C function {name}: run "
                "pip install 'llguidance>=1.9.1,<1.10'."
            ) from None
        function.restype, function.argtypes = result, arguments
    return library


def library_version() -> str:
    """Name and version of the library and of its regular expressions."""
    return str(_library().llg_get_version().decode())


class LlguidanceBackend:
    """The library with one vocabulary.

    Args:
        vocabulary: of the model.

    Raises:
        EngineError: the library is missing, or refuses the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._library = library = _library()
        eos, *more_eos = vocabulary.eos_token_ids
        extra = (_U32 * len(more_eos))(*more_eos)
        slices = (_STR * (len(_SLICES) + 1))(*_SLICES, None)
        init = _TokenizerInit(
            struct_size=ctypes.sizeof(_TokenizerInit),
            vocab_size=vocabulary.vocab_size,
            tok_eos=eos,
            token_lens=vocabulary.token_lens,
            token_bytes=vocabulary.token_bytes,
            # how a text would be cut into tokens matters only to who lets the grammar write it
            use_approximate_greedy_tokenize_fn=True,
            slices=slices,
            tok_eos_extra=extra,
            tok_eos_extra_count=len(more_eos),
        )
        message = ctypes.create_string_buffer(_ERROR_BYTES)
        self._tokenizer = library.llg_new_tokenizer_v2(init, message, _ERROR_BYTES)
        if not self._tokenizer:
            raise EngineError(f"llguidance refuses the vocabulary: {_text(message.value)}.")
        self._scratch = (_U32 * -(-vocabulary.vocab_size // 32))()
        self._init = _ConstraintInit()
        library.llg_constraint_init_set_defaults(self._init, self._tokenizer)
        self._init.log_buffer_level = self._init.log_stderr_level = 0
        self._init.limits.verbose_errors = False  # they would quote the whole grammar

    def __del__(self) -> None:
        if getattr(self, "_tokenizer", None):
            self._library.llg_free_tokenizer(self._tokenizer)

    def compile(self, grammar: Grammar) -> LlguidanceGrammar:
        """A grammar whose first mask has been made, so that copies begin with what that took.

        Raises:
            GrammarError: it has mistakes, asks for what is not supported, or is too large.
        """
        return on_deep_stack(lambda: self._compile(grammar), STACK_BYTES)

    def _compile(self, grammar: Grammar) -> LlguidanceGrammar:
        library = self._library
        matcher = LlguidanceMatcher(
            library,
            library.llg_new_matcher(self._init, grammar.kind.encode(), grammar.text.encode()),
        )
        matcher.raise_error()
        matcher.fill_mask(ctypes.addressof(self._scratch), ctypes.sizeof(self._scratch))
        return LlguidanceGrammar(matcher)

    @property
    def matcher_calls(self) -> tuple[int, int]:
        """See `GrammarBackend`."""
        library = self._library
        return (
            _address(library.llg_matcher_validate_tokens),
            _address(library.llg_matcher_compute_mask_into),
        )

    def mask_queue(self) -> MaskQueue:
        """A thread that makes masks."""
        # the API process, which makes none, does without numpy
        from octavo.structured_output.llguidance_masks import LlguidanceMaskQueue

        return LlguidanceMaskQueue(_address(self._library.llg_matcher_compute_mask_into))

    def check(self, grammar: Grammar) -> None:
        """
        Raises:
            GrammarError: as `compile`.
        """
        on_deep_stack(lambda: self._check(grammar), STACK_BYTES)

    def _check(self, grammar: Grammar) -> None:
        message = ctypes.create_string_buffer(_ERROR_BYTES)
        result = self._library.llg_validate_grammar(
            self._init, grammar.kind.encode(), grammar.text.encode(), message, _ERROR_BYTES
        )
        if result < 0:
            raise GrammarError(_text(message.value))


class LlguidanceGrammar:
    """A compiled grammar: a matcher at its beginning, to copy."""

    def __init__(self, first: LlguidanceMatcher) -> None:
        self._first = first
        self._has_learned = False

    def start(self) -> LlguidanceMatcher:
        """A new output."""
        return self._first.copy()

    def learn(self, ended: Matcher) -> None:
        """See `CompiledGrammar`. The library finds states of its lexer when a text leads to them,
        and copies have those of the original: masks take a third less time. One output is enough;
        with the states of dozens masks take longer again, as tables become large."""
        assert isinstance(ended, LlguidanceMatcher)
        if not self._has_learned and ended.reset():
            self._has_learned = True
            self._first = ended


class LlguidanceMatcher:
    """One output. The object on the library's side lives as long as this one."""

    __slots__ = ("_library", "handle")

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self._library = library
        self.handle = handle

    def __del__(self) -> None:
        self._library.llg_free_matcher(self.handle)

    def copy(self) -> LlguidanceMatcher:
        """A matcher in the same state that shares nothing that changes."""
        return LlguidanceMatcher(self._library, self._library.llg_clone_matcher(self.handle))

    def reset(self) -> bool:
        """Goes back to the beginning; False if the matcher has failed."""
        if self._library.llg_matcher_is_error(self.handle):
            return False
        return bool(self._library.llg_matcher_reset(self.handle) == 0)

    def fill_mask(self, address: int, num_bytes: int) -> None:
        """Writes the mask of what may come next.

        Raises:
            GrammarError: too much work.
        """
        if self._library.llg_matcher_compute_mask_into(self.handle, address, num_bytes) != 0:
            self.raise_error()

    def accept(self, token_id: int) -> None:
        """Takes the next token.

        Raises:
            GrammarError: the grammar does not allow it.
        """
        if self._library.llg_matcher_consume_token(self.handle, token_id) != 0:
            self.raise_error()

    @property
    def is_complete(self) -> bool:
        """True if nothing can follow."""
        return bool(self._library.llg_matcher_is_stopped(self.handle))

    def raise_error(self) -> None:
        """
        Raises:
            GrammarError: the matcher has failed.
        """
        if self._library.llg_matcher_is_error(self.handle):
            raise GrammarError(_text(self._library.llg_matcher_get_error(self.handle)))


def _address(function: Any) -> int:
    """Of a C function."""
    address = ctypes.cast(function, _P).value
    assert address is not None
    return address


def _text(message: bytes | None) -> str:
    """The library's words on one line, without what points into a text."""
    lines = (message or b"no reason given").decode(errors="replace").splitlines()
    words = [line.strip() for line in lines if line.strip() and not set(line.strip()) <= {"^"}]
    return printable(" ".join(words)).rstrip(".")
