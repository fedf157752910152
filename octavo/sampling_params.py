"""How one request wants its tokens chosen and its output returned.

`SamplingParams` has vLLM's field names, defaults and limits. Values are checked when the object is
made (`InvalidParameter` names the field); what needs the model (vocabulary size, window, allowed
logprobs) is checked in `octavo/frontend/input_processor.py`.

Runs in: every process. Owns: the limits that need no model. Knows nothing of: models, HTTP.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Self

import msgspec

from octavo.errors import InvalidParameter
from octavo.wording import shown

logger = logging.getLogger(__name__)

# smaller non-zero temperatures are raised to this: exp() of the logits stays finite
MIN_TEMPERATURE = 0.01
MAX_TEMPERATURE = 2
# repetition penalties are moved into these bounds: logits times one stay finite in float32
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 1e-30, 1e30
MAX_N = 16384
MAX_STOP_CHARACTERS = 65536  # in all stop strings together; each costs memory per character
MAX_LOGPROB_TOKEN_IDS = 128
MAX_LOGIT_BIAS = 100.0
MAX_STREAM_INTERVAL = 2**31 - 1
#: of `repetition_detection`: what one token may cost to look at
MAX_PATTERN_SIZE, MAX_PATTERN_COUNT = 1024, 1024

_OPTIONAL_INTEGERS = ("seed", "max_tokens", "logprobs", "prompt_logprobs", "stream_interval")
_INTEGERS = ("n", "top_k", "min_tokens", *_OPTIONAL_INTEGERS)
_NUMBERS = (
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "min_p",
)


class RequestOutputKind(IntEnum):
    """What each `RequestOutput` of a request carries."""

    CUMULATIVE = 0  # the whole text so far, each time
    DELTA = 1  # only what is new
    FINAL_ONLY = 2  # nothing before the end


class RepetitionDetectionParams(msgspec.Struct, omit_defaults=True, frozen=True):
    """Ends a request whose last tokens are one pattern again and again.

    `min_count` equal patterns of `min_pattern_size` (0: 1) to `max_pattern_size` tokens end it;
    `max_pattern_size` 0 switches it off.

    Raises:
        InvalidParameter: a value is outside its limits.
    """

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def __post_init__(self) -> None:
        field, shortest, longest = "repetition_detection", *self._sizes()
        if not 0 <= shortest <= longest <= MAX_PATTERN_SIZE:
            raise InvalidParameter(
                "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= "
                f"max_pattern_size <= {MAX_PATTERN_SIZE}. Set both to 0 to disable repetitive "
                f"pattern detection. (parameter={field}, value=[{shortest}, {longest}])",
                param=field,
            )
        if longest > 0 and not 2 <= self.min_count <= MAX_PATTERN_COUNT:
            raise InvalidParameter(
                f"min_count must be >= 2 (and <= {MAX_PATTERN_COUNT}) to detect repetitive "
                "patterns in engine output. If you do not wish to detect repetitive patterns, set "
                f"max_pattern_size to 0. (parameter={field}, value={shown(self.min_count)})",
                param=field,
            )

    def _sizes(self) -> tuple[int, int]:
        for name in self.__struct_fields__:
            if type(getattr(self, name)) is not int:
                raise _invalid("repetition_detection", getattr(self, name), "must hold integers")
        return self.min_pattern_size, self.max_pattern_size

    def is_met(self, token_ids: list[int], num_prompt_tokens: int) -> bool:
        """True when the tokens after the prompt end with such a repetition."""
        num_tokens, count = len(token_ids) - num_prompt_tokens, self.min_count
        for size in range(max(self.min_pattern_size, 1), self.max_pattern_size + 1):
            if size * count > num_tokens:
                return False
            # equal patterns in a row: the end equals itself moved by one pattern
            if token_ids[-size * (count - 1) :] == token_ids[-size * count : -size]:
                return True
        return False


class ReasoningMarks(msgspec.Struct, frozen=True, array_like=True):
    """What begins and ends the reasoning before an answer; a grammar holds after it.

    `is_open`: the prompt has begun it. Otherwise an output may begin with one of `begin`.
    `budget`: after so many tokens of reasoning the first of `end` is written; None: never.
    `is_free`: the grammar takes any tokens, so that one may end the reasoning and go on.
    """

    begin: list[str]
    end: list[str]
    is_open: bool
    budget: int | None = None
    is_free: bool = False


class StructuredOutputsParams(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What the output must be: exactly one of the first six.

    Raises:
        InvalidParameter: none or several are given, or one has a wrong type.
    """

    json: str | dict[str, Any] | bool | None = None  # a JSON schema
    regex: str | None = None  # of the whole output
    choice: list[str] | None = None
    grammar: str | None = None  # Lark, or GBNF (EBNF of llama.cpp)
    json_object: bool | None = None  # any JSON object
    structural_tag: str | dict[str, Any] | None = None
    disable_any_whitespace: bool = False  # between tokens of JSON
    disable_additional_properties: bool = False  # of objects whose schema lists properties
    whitespace_pattern: str | None = None  # a regular expression; None: up to 8 characters
    #: the field of the request that it comes from, for sentences
    origin: str = "structured_outputs"
    #: of a structural tag: the fields that its schemas come from, in their order
    schema_origins: list[str] | None = None

    def __post_init__(self) -> None:
        field = self.origin
        given = [name for name in _CONSTRAINTS if self._has(name)]
        if len(given) > 1:
            raise InvalidParameter(
                "You can only use one kind of structured outputs constraint but multiple are "
                f"specified: {', '.join(given)} (parameter={field})",
                param=field,
            )
        if not given:
            raise InvalidParameter(
                "You must use one kind of structured outputs constraint but none are specified: "
                f"give one of {', '.join(_CONSTRAINTS)} (parameter={field})",
                param=field,
            )
        kind, value = self.constraint
        if not isinstance(value, _CONSTRAINTS[kind]):
            raise _invalid(f"{field}.{kind}", value, "has a wrong type")
        if value in ("", []):
            raise _invalid(f"{field}.{kind}", value, "must not be empty")
        if not all(isinstance(text, str) and text for text in self.choice or ()):
            raise _invalid(f"{field}.{kind}", value, "must hold texts that are not empty")

    @property
    def constraint(self) -> tuple[str, Any]:
        """The one that is given: its name and value."""
        return next((name, getattr(self, name)) for name in _CONSTRAINTS if self._has(name))

    def _has(self, name: str) -> bool:
        value = getattr(self, name)
        return value is not None and not (name == "json_object" and value is False)


_CONSTRAINTS: dict[str, tuple[type, ...]] = {
    "json": (str, dict, bool),
    "regex": (str,),
    "choice": (list, tuple),
    "grammar": (str,),
    "json_object": (bool,),
    "structural_tag": (str, dict),
}


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Sampling and output options of one request.

    Raises:
        InvalidParameter: a value is outside its limits; `param` names the field.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] | str | None = None
    stop_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    stream_interval: int | None = None
    skip_clone: bool = False
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    #: True: compute the whole prompt. Always so with `prompt_logprobs`
    skip_reading_prefix_cache: bool | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    structured_outputs: StructuredOutputsParams | None = None
    #: where `structured_outputs` does not hold; set by the API, from the model's reasoning parser
    reasoning: ReasoningMarks | None = None
    #: `bad_words` as token sequences; set by `octavo/frontend/input_processor.py`
    bad_words_token_ids: list[list[int]] | None = None

    @classmethod
    def from_optional(cls, **values: Any) -> Self:
        """Like the constructor, but None means the default where None is no value, and
        `logit_bias` may have ids written as strings and any size of bias."""
        for name in (*_NUMBERS, "n", "top_k"):
            if values.get(name, name) is None:
                del values[name]
        if values.get("logit_bias") is not None:
            values["logit_bias"] = _clamped_bias(values["logit_bias"])
        return cls(**values)

    def clone(self) -> Self:
        """A copy that shares nothing (with `skip_clone`: a shallow one)."""
        return copy.copy(self) if self.skip_clone else copy.deepcopy(self)

    def __post_init__(self) -> None:
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is True:  # vLLM takes it for 1
                setattr(self, name, 1)
        self._check_types()
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        if self.seed == -1:
            self.seed = None
        if self.top_k == -1:
            self.top_k = 0
        self._check()
        self.repetition_penalty = min(
            max(self.repetition_penalty, MIN_REPETITION_PENALTY), MAX_REPETITION_PENALTY
        )
        if 0 < self.temperature < MIN_TEMPERATURE:
            logger.warning(
                "temperature %s is less than %s and was raised to that; 0 takes the most likely "
                "token.",
                self.temperature,
                MIN_TEMPERATURE,
            )
            self.temperature = MIN_TEMPERATURE
        if self.is_greedy:  # the filters have nothing to choose between
            self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0

    @property
    def is_greedy(self) -> bool:
        """True when the most likely token is always taken."""
        return self.temperature == 0

    @property
    def num_logprobs(self) -> int | None:
        """Candidates reported beside each chosen token; None: no logprobs."""
        return self.logprobs if self.logprob_token_ids is None else len(self.logprob_token_ids)

    @property
    def stop_strings(self) -> list[str]:
        """The stop strings as a list (empty when there are none)."""
        stop = self.stop
        return [stop] if isinstance(stop, str) else list(stop or ())

    def _check_types(self) -> None:
        """Python callers may pass anything; comparisons below need numbers."""
        for name in _INTEGERS:
            value = getattr(self, name)
            if type(value) is not int and not (value is None and name in _OPTIONAL_INTEGERS):
                raise _invalid(name, value, "must be an integer")
        for name in _NUMBERS:
            value = getattr(self, name)
            if isinstance(value, float):
                setattr(self, name, float(value))  # numpy's are floats, and cannot be sent
            elif type(value) is not int:
                raise _invalid(name, value, "must be a number")

    def _check(self) -> None:
        _in_range("n", self.n, 1, MAX_N)
        _in_range("presence_penalty", self.presence_penalty, -2, 2)
        _in_range("frequency_penalty", self.frequency_penalty, -2, 2)
        _finite("repetition_penalty", self.repetition_penalty)
        if self.repetition_penalty <= 0:
            raise _invalid(
                "repetition_penalty", self.repetition_penalty, "must be greater than zero"
            )
        _in_range("temperature", self.temperature, 0, MAX_TEMPERATURE)
        _finite("top_p", self.top_p)
        if not 0 < self.top_p <= 1:
            raise _invalid("top_p", self.top_p, "must be in (0, 1]")
        if self.top_k < 0:
            raise _invalid("top_k", self.top_k, "must be 0 or -1 (off), or at least 1")
        _in_range("min_p", self.min_p, 0, 1)
        if self.seed is not None:
            _in_range("seed", self.seed, -(2**63), 2**64 - 1)
        if self.max_tokens is not None and self.max_tokens < 0:
            raise _invalid("max_tokens", self.max_tokens, "must be at least 0")
        if self.min_tokens < 0:
            raise _invalid("min_tokens", self.min_tokens, "must be at least 0")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _invalid(
                "min_tokens", self.min_tokens, f"must not exceed max_tokens={self.max_tokens}"
            )
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None and value < -1:
                raise _invalid(name, value, "must be at least 0, or -1 for the whole vocabulary")
        if self.stream_interval is not None:
            _in_range("stream_interval", self.stream_interval, 1, MAX_STREAM_INTERVAL)
        self._check_text_options()
        self._check_id_options()

    def _check_text_options(self) -> None:
        if any(not isinstance(s, str) or not s for s in self.stop_strings):
            raise _invalid("stop", self.stop, "must hold strings that are not empty")
        if sum(map(len, self.stop_strings)) > MAX_STOP_CHARACTERS:
            raise _invalid("stop", self.stop, f"may have {MAX_STOP_CHARACTERS} characters in all")
        if self.stop_strings and not self.detokenize:
            raise _invalid(
                "stop", self.stop, "needs detokenize=True: stop strings are matched in the text"
            )
        if self.bad_words is not None and any(not w for w in self.bad_words):
            raise _invalid("bad_words", self.bad_words, "must not contain an empty string")

    def _check_id_options(self) -> None:
        if self.logprob_token_ids is not None:
            count = len(self.logprob_token_ids)
            if not 1 <= count <= MAX_LOGPROB_TOKEN_IDS:
                raise _invalid(
                    "logprob_token_ids", count, f"must hold 1 to {MAX_LOGPROB_TOKEN_IDS} token ids"
                )
            if self.logprobs is not None and self.logprobs != count:
                raise _invalid(
                    "logprobs", self.logprobs, f"must equal the {count} of logprob_token_ids"
                )
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise _invalid("allowed_token_ids", self.allowed_token_ids, "must not be empty")
        if self.logit_bias:
            for value in self.logit_bias.values():
                _finite("logit_bias", value)


def _invalid(name: str, value: object, rule: str) -> InvalidParameter:
    got = shown(value)
    return InvalidParameter(
        f"{name} {rule}, got {got}. (parameter={name}, value={got})", param=name
    )


def _finite(name: str, value: float) -> None:
    if not _is_finite(value):
        raise _invalid(name, value, "must be a finite number")


def _in_range(name: str, value: float, low: float, high: float) -> None:
    if not _is_finite(value) or not low <= value <= high:
        raise _invalid(name, value, f"must be in [{low}, {high}]")


def _is_finite(value: float) -> bool:
    """Integers are finite, whatever their size (`math.isfinite` cannot take the largest)."""
    return isinstance(value, int) or math.isfinite(value)


def _clamped_bias(logit_bias: Mapping[Any, float]) -> dict[int, float]:
    try:
        ids = {int(token_id): bias for token_id, bias in logit_bias.items()}
    except (ValueError, TypeError):
        raise _invalid("logit_bias", list(logit_bias), "must have token ids as keys") from None
    return {
        token_id: min(max(bias, -MAX_LOGIT_BIAS), MAX_LOGIT_BIAS) for token_id, bias in ids.items()
    }


class BeamSearchParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Options of one beam search.

    Scores are the sums of log-probabilities over length ** `length_penalty`, length being that of
    prompt and output together (as in vLLM).

    Raises:
        InvalidParameter: a value is outside its limits; `param` names the field.
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        for name in ("beam_width", "max_tokens"):
            if type(getattr(self, name)) is not int:
                raise _invalid(name, getattr(self, name), "must be an integer")
        _in_range("beam_width", self.beam_width, 1, MAX_N)
        if self.max_tokens < 1:
            raise _invalid("max_tokens", self.max_tokens, "must be at least 1")
        _in_range("temperature", self.temperature, 0, MAX_TEMPERATURE)
        _in_range("length_penalty", self.length_penalty, -100, 100)
