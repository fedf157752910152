"""`Tokenizer`: text to ids and back, for whichever file it came from.

Runs in: the API process, or the user's process offline. Owns: one loaded tokenizer.
Knows nothing of: requests, HTTP, models.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from octavo.errors import EngineError, InvalidParameter, StartupError
from octavo.tokenizer.decode_stream import DecodeStream
from octavo.tokenizer.folder_tokenizer import load_folder_tokenizer
from octavo.tokenizer.gguf_tokenizer import load_gguf_tokenizer
from octavo.tokenizer.loaded_tokenizer import LoadedTokenizer
from octavo.tokenizer.token_bytes import TokenBytes
from octavo.wording import first_line

_NO_IDS: frozenset[int] = frozenset()


class Tokenizer:
    """A loaded tokenizer; safe to share between threads.

    Args:
        loaded: from one of the loaders.
        path: where it came from, for sentences.
    """

    def __init__(self, loaded: LoadedTokenizer, path: str) -> None:
        self.path = path
        #: bos_token, eos_token, unk_token, ... as chat templates name them
        self.special_tokens = loaded.special_tokens
        #: templates by name; `chat_template` is the main one
        self.chat_templates = loaded.chat_templates
        #: how transformers reads this model's replies
        self.response_template = loaded.response_template
        self._backend = loaded.backend
        self._token_bytes = TokenBytes(loaded.backend, path)
        self.special_ids: frozenset[int] = frozenset(
            token_id
            for token_id, token in loaded.backend.get_added_tokens_decoder().items()
            if token.special
        )

    @property
    def chat_template(self) -> str | None:
        """The main chat template, None when the model has none."""
        return self.chat_templates.get("default")

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included (a model's embedding may have more rows)."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @property
    def base_vocab_size(self) -> int:
        """Number of tokens of the vocabulary proper, without those added to it."""
        return self._backend.get_vocab_size(with_added_tokens=False)

    @functools.cached_property
    def max_token_characters(self) -> int:
        """Characters of the longest token, as the vocabulary spells it: no shorter than its text.
        Takes some ten milliseconds the first time."""
        return max(map(len, self._backend.get_vocab(with_added_tokens=True)), default=1)

    @property
    def bos_token(self) -> str | None:
        """Begin of sequence."""
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """End of sequence."""
        return self.special_tokens.get("eos_token")

    @property
    def bos_token_id(self) -> int | None:
        """Id of `bos_token`."""
        return self._optional_id(self.bos_token)

    @property
    def eos_token_id(self) -> int | None:
        """Id of `eos_token`."""
        return self._optional_id(self.eos_token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text. Spelled-out control tokens in the text become their ids.

        Args:
            add_special_tokens: BOS and the like, as the model wants them; not for rendered chats,
                which hold them already.

        Raises:
            InvalidParameter: the text has half of a surrogate pair, which no encoding can hold.
            EngineError: the tokenizer's parts do not work together.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidParameter(
                "The prompt has a lone surrogate, which is not a character; send valid Unicode.",
                param="prompt",
            ) from None
        # A batch of one: unlike the library's `encode`, it lets go of the interpreter lock (the
        # event loop goes on while a thread encodes a long prompt), and computes no offsets.
        try:
            (encoding,) = self._backend.encode_batch_fast(
                [text], add_special_tokens=add_special_tokens
            )
        except BaseException as error:
            raise self._failure(error) from None
        return encoding.ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ids as one piece. Ids without a token give nothing.

        Raises:
            InvalidParameter: an id is negative or beyond 32 bits.
            EngineError: the tokenizer's parts do not work together.
        """
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < 1 << 32:
            raise InvalidParameter("Token ids must be in [0, 2**32).", param="tokens")
        try:
            return self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
        except BaseException as error:
            raise self._failure(error) from None

    def decode_stream(
        self, prompt_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> DecodeStream:
        """A new incremental decoder for an output that follows `prompt_ids`."""
        hidden_ids = self.special_ids if skip_special_tokens else _NO_IDS
        return DecodeStream(self._token_bytes, prompt_ids, hidden_ids)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one token stands for; possibly a part of a character."""
        return self._token_bytes[token_id]

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it, None for an id without one."""
        return self._backend.id_to_token(token_id)

    def token_to_id(self, token: str) -> int | None:
        """Id of a token as the vocabulary spells it, None when there is none."""
        return self._backend.token_to_id(token)

    def added_tokens(self) -> list[tuple[int, str, bool]]:
        """Id, text and whether it is special, of the tokens matched in text as a whole; by id."""
        added = sorted(self._backend.get_added_tokens_decoder().items())
        return [(token_id, token.content, token.special) for token_id, token in added]

    def _failure(self, error: BaseException) -> BaseException:
        """What to raise for `error`: the library's errors are bare exceptions, and its panics not
        even those."""
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            return EngineError(f"The tokenizer of {self.path} failed: {first_line(error)}.")
        return error

    def _optional_id(self, token: str | None) -> int | None:
        return None if token is None else self._backend.token_to_id(token)


def load_tokenizer(path: str) -> Tokenizer:
    """Loads the tokenizer of a GGUF file, or of a folder with tokenizer.json.

    Raises:
        ConfigError: it is missing, or of a kind that is not supported.
        StartupError: it is damaged.
    """
    is_folder = os.path.isdir(path)
    loaded = load_folder_tokenizer(path) if is_folder else load_gguf_tokenizer(path)
    tokenizer = Tokenizer(loaded, path)
    try:
        tokenizer.encode("a")
    except EngineError as error:
        raise StartupError(f"{error.message} Download {path} again.") from None
    return tokenizer
