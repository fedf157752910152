"""Prompt and `SamplingParams` to `EngineCoreRequest`: the last place that can refuse a request.

Everything that needs the model is checked here (`SamplingParams` checks the rest itself); below,
nobody checks again and no value can hurt the core.

Neighbours: `octavo/frontend/async_llm.py` and `octavo/llm.py` (callers), `octavo/tokenizer`.
Runs in: API process, or the user's process offline. Owns: the limits a request must respect.
Knows nothing of: queues, HTTP, chat templates.
"""

from __future__ import annotations

import copy
import logging
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from octavo.config.engine import ModelConfig
from octavo.errors import InvalidParameter, PromptTooLong
from octavo.frontend.prompt import Prompt, TextPrompt, TokensPrompt
from octavo.messages.engine import EngineCoreRequest
from octavo.sampling_params import MAX_LOGIT_BIAS, SamplingParams
from octavo.wording import first_line, shown

if TYPE_CHECKING:
    from octavo.sample.logits_processor import LogitsProcessor

logger = logging.getLogger(__name__)

MAX_BAD_WORDS = 128
MAX_BAD_WORDS_TOKENS = 1024
MAX_BAD_WORDS_CHARACTERS = 65536
#: of texts that need not fit in the window; tokenising takes up to a second per million
MAX_TEXT_CHARACTERS = 1_000_000
MAX_SALT_CHARACTERS = 128
_SALT_FORBIDDEN = frozenset("@/\\\0")  # caches outside build paths and keys of salts


class InputTokenizer(Protocol):
    """What reading prompts needs of a tokenizer."""

    @property
    def bos_token_id(self) -> int | None: ...

    @property
    def max_token_characters(self) -> int: ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...


class InputProcessor:
    """Checks requests against the model and fills in what they leave open.

    Args:
        model: the model; `max_model_len` and `vocab_size` are the limits.
        tokenizer: None if there is none (`--skip-tokenizer-init`): token ids only.
        clock: Unix time.
    """

    def __init__(
        self,
        model: ModelConfig,
        tokenizer: InputTokenizer | None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = model.vocab_size
        self._eos_token_ids = list(model.eos_token_ids)
        self._max_logprobs = model.vocab_size if model.max_logprobs == -1 else model.max_logprobs
        self._is_full_vocab_allowed = model.max_logprobs == -1
        self._clock = clock
        self.max_model_len = model.max_model_len
        self._kv_cache_size_tokens: int | None = None
        self._processors: list[type[LogitsProcessor]] = []
        if model.logits_processors:
            # here: foreign code, and numpy, only where they are asked for
            from octavo.sample.logits_processor import load_logits_processors

            self._processors = load_logits_processors(model.logits_processors)

    def set_limits(self, max_model_len: int, kv_cache_size_tokens: int) -> None:
        """Takes what the core knows after it has planned its memory."""
        self.max_model_len = max_model_len
        self._kv_cache_size_tokens = kv_cache_size_tokens

    @property
    def _max_prompt_characters(self) -> int:
        """Characters of a window of the longest tokens."""
        longest = 1 if self._tokenizer is None else self._tokenizer.max_token_characters
        return self.max_model_len * longest

    def check_any_text(self, text: str) -> None:
        """Cheap, before a text that is no prompt is encoded.

        Raises:
            InvalidParameter: it would take longer than one request may.
        """
        if len(text) <= MAX_TEXT_CHARACTERS:
            return
        limit = max(MAX_TEXT_CHARACTERS, self._max_prompt_characters)
        if len(text) > limit:
            raise InvalidParameter(
                f"The text has {len(text)} characters; at most {limit} are tokenised in one "
                "request. Please send it in pieces.",
                param="prompt",
            )

    def check_text(self, text: str) -> None:
        """Cheap, before a long prompt is encoded: what cannot fit in the window for its length.

        Raises:
            PromptTooLong: even the longest tokens of the vocabulary would be too many.
        """
        if len(text) < self.max_model_len:
            return  # a token is at least one character
        limit = self._max_prompt_characters
        if len(text) > limit and self._tokenizer is not None:
            raise PromptTooLong(
                f"This model's maximum context length is {self.max_model_len} tokens, which is at "
                f"most {limit} characters. However, your prompt has {len(text)} characters. Please "
                f"reduce the length of the input prompt. (parameter=input_text, value={len(text)})",
                param="input_text",
            )

    def encode(self, prompt: TextPrompt) -> TokensPrompt:
        """Text to token ids; may take long and touches nothing of this object: any thread.

        Raises:
            InvalidParameter: there is no tokenizer, or the text is not valid Unicode.
        """
        tokenizer = self._need_tokenizer("prompt", "send token ids")
        ids = tokenizer.encode(prompt.text, add_special_tokens=prompt.add_special_tokens)
        return TokensPrompt(ids, prompt.text, prompt.cache_salt)

    def process(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> EngineCoreRequest:
        """One request with everything checked; `params` itself is not changed.

        Args:
            cache_salt: instead of the prompt's own.

        Raises:
            InvalidParameter, PromptTooLong: with the name of the offending field.
        """
        params = self.complete_params(params)
        salt = _checked_salt(prompt.cache_salt if cache_salt is None else cache_salt)
        if isinstance(prompt, TextPrompt):
            self.check_text(prompt.text)
            prompt = self.encode(prompt)
        token_ids = self._checked_prompt(prompt.token_ids, is_alone=params.max_tokens == 0)
        if prompt.text is not None:
            self._warn_of_two_bos(token_ids, request_id)
        params.max_tokens = self._max_tokens(len(token_ids), params.max_tokens)
        if params.min_tokens > params.max_tokens:
            raise InvalidParameter(
                f"min_tokens={params.min_tokens} is not possible: after a prompt of "
                f"{len(token_ids)} tokens there is room for {params.max_tokens}. "
                f"(parameter=min_tokens, value={params.min_tokens})",
                param="min_tokens",
            )
        return EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling_params=params,
            arrival_time_s=self._clock(),
            eos_token_ids=self._eos_token_ids,
            priority=priority,
            cache_salt=salt,
        )

    def complete_params(self, params: SamplingParams) -> SamplingParams:
        """A copy of `params` whose values fit the model; all but `max_tokens` is final.

        Raises:
            InvalidParameter: a value does not fit.
        """
        params = copy.copy(params)
        if params.max_tokens is not None and params.max_tokens > self.max_model_len:
            raise InvalidParameter(
                f"max_tokens={params.max_tokens} cannot be greater than "
                f"max_model_len={self.max_model_len}. Please request fewer output tokens.",
                param="max_tokens",
            )
        if params.top_k >= self._vocab_size:
            params.top_k = 0  # takes nothing away
        params.logprobs = self._num_logprobs("logprobs", "sample", params.logprobs)
        params.prompt_logprobs = self._num_logprobs(
            "prompt_logprobs", "prompt", params.prompt_logprobs
        )
        if params.logit_bias:
            self._check_ids("logit_bias", params.logit_bias)
            params.logit_bias = {
                token_id: min(max(bias, -MAX_LOGIT_BIAS), MAX_LOGIT_BIAS)
                for token_id, bias in params.logit_bias.items()
            }
        if params.allowed_token_ids:
            self._check_ids("allowed_token_ids", params.allowed_token_ids)
        if params.logprob_token_ids:
            self._check_ids("logprob_token_ids", params.logprob_token_ids)
            params.logprobs = len(params.logprob_token_ids)
        if params.stop_token_ids:
            params.stop_token_ids = list(dict.fromkeys(params.stop_token_ids))
            self._check_ids("stop_token_ids", params.stop_token_ids)
        if params.stop_strings:
            self._need_tokenizer("stop", "use stop_token_ids")
        if params.bad_words:
            params.bad_words_token_ids = self._encode_bad_words(params.bad_words)
        self._check_any_is_allowed(params)
        self._ask_processors(params)
        return params

    def _ask_processors(self, params: SamplingParams) -> None:
        for processor in self._processors:
            try:
                processor.validate_params(params)
            except ValueError as error:
                raise InvalidParameter(
                    f"vllm_xargs: {first_line(error)} (parameter=vllm_xargs)", param="vllm_xargs"
                ) from error

    def _check_any_is_allowed(self, params: SamplingParams) -> None:
        """Some token can be the first one."""
        banned = {words[0] for words in params.bad_words_token_ids or () if len(words) == 1}
        if params.min_tokens > 0:
            banned.update(params.stop_token_ids or ())
            if not params.ignore_eos:
                banned.update(self._eos_token_ids)
        allowed = params.allowed_token_ids
        if allowed is None:
            field, is_possible = "stop_token_ids", len(banned) < self._vocab_size
        else:
            field, is_possible = "allowed_token_ids", not banned.issuperset(allowed)
        if not is_possible:
            raise InvalidParameter(
                f"{field} leaves no token to begin with: bad_words and, with min_tokens, the "
                f"tokens that end a request are excluded. (parameter={field})",
                param=field,
            )

    def _need_tokenizer(self, field: str, remedy: str) -> InputTokenizer:
        if self._tokenizer is None:
            raise InvalidParameter(
                f"{field} needs a tokenizer and the server runs without one "
                f"(--skip-tokenizer-init): {remedy}.",
                param=field,
            )
        return self._tokenizer

    def _checked_prompt(self, token_ids: Sequence[int], *, is_alone: bool) -> list[int]:
        """A prompt that fits; one that is alone (`max_tokens` of 0) may fill the window."""
        ids = list(token_ids)
        if not ids:
            raise InvalidParameter(
                "prompt must not be empty: send at least one token.", param="prompt"
            )
        self._check_ids("prompt", ids)
        num, window = len(ids), self.max_model_len
        if num > window or (num == window and not is_alone):
            if num > window:
                message = (
                    f"This model's maximum context length is {window} tokens. However, your prompt "
                    f"contains {num} input tokens, which exceeds this limit even without any "
                    "output tokens."
                )
            else:
                message = (
                    f"This model's maximum context length is {window} tokens. However, your prompt "
                    f"contains {num} input tokens, which leaves no room for an output token."
                )
            raise PromptTooLong(
                f"{message} Please reduce the length of the input prompt. "
                f"(parameter=input_tokens, value={num})",
                param="input_tokens",
            )
        return ids

    def _max_tokens(self, num_prompt_tokens: int, max_tokens: int | None) -> int:
        """Output tokens the request may have: what was asked, or what the window has room for."""
        room = self.max_model_len - num_prompt_tokens
        wanted = room if max_tokens is None else min(max_tokens, room)
        capacity = self._kv_cache_size_tokens
        # the last generated token is never an input: it needs no place in the cache
        if capacity is None or num_prompt_tokens + max(wanted - 1, 0) <= capacity:
            return wanted
        kv_room = capacity - num_prompt_tokens + 1
        if kv_room < 1:
            raise PromptTooLong(
                f"The prompt contains {num_prompt_tokens} tokens and the whole KV cache holds "
                f"{capacity}. Please reduce the length of the input prompt, or start the server "
                "with more KV cache (--kv-cache-memory-bytes). "
                f"(parameter=input_tokens, value={num_prompt_tokens})",
                param="input_tokens",
            )
        if max_tokens is not None:
            raise InvalidParameter(
                f"max_tokens={max_tokens} with a prompt of {num_prompt_tokens} tokens needs more "
                f"than the whole KV cache, which holds {capacity} tokens. Please request at most "
                f"{kv_room} output tokens, or start the server with more KV cache "
                "(--kv-cache-memory-bytes).",
                param="max_tokens",
            )
        return kv_room

    def _num_logprobs(self, field: str, kind: str, value: int | None) -> int | None:
        if value is None:
            return None
        if value == -1 and self._is_full_vocab_allowed:
            return self._vocab_size
        if value == -1 or value > self._max_logprobs:
            asked = f"{value} (the whole vocabulary)" if value == -1 else str(value)
            raise InvalidParameter(
                f"Requested {kind} logprobs of {asked}, which is greater than max allowed: "
                f"{self._max_logprobs} (--max-logprobs). (parameter={field}, value={value})",
                param=field,
            )
        return value

    def _check_ids(self, field: str, token_ids: Iterable[int]) -> None:
        """Every id is an integer in the vocabulary."""
        ids = token_ids if isinstance(token_ids, list) else list(token_ids)
        vocab_size = self._vocab_size
        try:
            array("q", ids)  # integers of 64 bits, nothing else
            is_right = min(ids) >= 0 and max(ids) < vocab_size
        except (TypeError, OverflowError):
            is_right = False
        if is_right:
            return
        for token_id in ids:
            if not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
                raise InvalidParameter(
                    f"{field} contains token id {str(token_id)[:40]}, which is not in the model's "
                    f"vocabulary of {vocab_size} tokens (ids 0 to {vocab_size - 1}).",
                    param=field,
                )
        raise AssertionError(f"{field}: no offending id found")

    def _encode_bad_words(self, words: list[str]) -> list[list[int]]:
        """Token sequences that must not appear: each word as it is, and with a space before it
        where that is a token of its own (vLLM's rule)."""
        if len(words) > MAX_BAD_WORDS:
            raise InvalidParameter(
                f"bad_words has {len(words)} entries; at most {MAX_BAD_WORDS} are allowed.",
                param="bad_words",
            )
        num_characters = sum(map(len, words))
        if num_characters > MAX_BAD_WORDS_CHARACTERS:
            raise InvalidParameter(
                f"bad_words has {num_characters} characters in all; at most "
                f"{MAX_BAD_WORDS_CHARACTERS} are allowed.",
                param="bad_words",
            )
        tokenizer = self._need_tokenizer("bad_words", "use logit_bias")
        sequences: list[list[int]] = []
        for word in words:
            stripped = word.lstrip()
            plain = tokenizer.encode(stripped, add_special_tokens=False)
            spaced = tokenizer.encode(" " + stripped, add_special_tokens=False)
            if not plain:
                raise InvalidParameter(
                    "bad_words entries must tokenize to at least one token. (parameter=bad_words, "
                    f"value={shown(word)})",
                    param="bad_words",
                )
            sequences.append(plain)
            if len(spaced) == len(plain) and spaced[:1] != plain[:1]:
                sequences.append(spaced)
        num_tokens = sum(map(len, sequences))
        if num_tokens > MAX_BAD_WORDS_TOKENS:
            raise InvalidParameter(
                f"bad_words has {num_tokens} tokens in all; at most {MAX_BAD_WORDS_TOKENS} are "
                "allowed.",
                param="bad_words",
            )
        return sequences

    def _warn_of_two_bos(self, token_ids: list[int], request_id: str) -> None:
        bos = None if self._tokenizer is None else self._tokenizer.bos_token_id
        if bos is not None and token_ids[:2] == [bos, bos]:
            logger.warning(
                "Request %s: the prompt begins with two BOS tokens, one of them in its text; send "
                "add_special_tokens=false if that is not meant.",
                request_id,
            )


def _checked_salt(salt: str | None) -> str | None:
    """The salt, which must be fit for a name.

    Raises:
        InvalidParameter: it is not.
    """
    if salt is None or (
        isinstance(salt, str)
        and 0 < len(salt) <= MAX_SALT_CHARACTERS
        and _SALT_FORBIDDEN.isdisjoint(salt)
        and not any("\ud800" <= character <= "\udfff" for character in salt)
    ):
        return salt
    raise InvalidParameter(
        f"cache_salt must be a text of 1 to {MAX_SALT_CHARACTERS} characters without '@', '/', "
        f"'\\\\' and NUL, got {shown(salt)}. (parameter=cache_salt)",
        param="cache_salt",
    )
