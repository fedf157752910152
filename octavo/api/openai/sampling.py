"""From the fields of a request to `SamplingParams`.

A value in the request wins over the model's default (`generation_config.json` and its overrides),
which wins over the neutral one.

Runs in: API process. Owns: that order, and the limits that exist only over HTTP.
Knows nothing of: prompts, the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.api.openai.protocol import SamplingFields
from octavo.errors import InvalidParameter
from octavo.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams

#: fields for which the model may bring a default
_DEFAULTED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
#: a beam search takes the likeliest outputs: what would exclude some of them cannot be honoured
_NOT_WITH_BEAMS = (
    "stop",
    "stop_token_ids",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "min_tokens",
    "prompt_logprobs",
    "logprob_token_ids",
    "repetition_detection",
)


def check_http_limits(request: SamplingFields, *, max_stop_strings: int) -> None:
    """Limits that bind only requests over HTTP.

    Raises:
        InvalidParameter: names the field.
    """
    if request.stream_options is not None and not request.stream:
        raise InvalidParameter(
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
            param="stream_options",
        )
    if isinstance(request.stop, list) and len(request.stop) > max_stop_strings:
        raise InvalidParameter(
            f"stop may hold at most {max_stop_strings} strings, got {len(request.stop)}. "
            "(parameter=stop)",
            param="stop",
        )
    if request.prompt_logprobs is not None and request.stream:
        raise InvalidParameter(
            "`prompt_logprobs` are not available when `stream=True`. (parameter=prompt_logprobs)",
            param="prompt_logprobs",
        )


def num_shown(request: SamplingFields, logprobs: int | None) -> int | None:
    """Candidates that a reply shows per token: those asked for by number, or by id and beside them
    the chosen one.

    Raises:
        InvalidParameter: ids without logprobs.
    """
    if request.logprob_token_ids is None:
        return logprobs
    if logprobs is None:
        raise InvalidParameter(
            "when using `logprob_token_ids`, `logprobs` must be set. (parameter=logprob_token_ids)",
            param="logprob_token_ids",
        )
    return len(request.logprob_token_ids) + 1


def beam_search_params(
    request: SamplingFields, defaults: Mapping[str, float], *, max_tokens: int
) -> BeamSearchParams:
    """A request with `use_beam_search`: the width is `n`.

    Raises:
        InvalidParameter: a value is outside its limits, or a field has no meaning here.
    """
    for name in _NOT_WITH_BEAMS:
        value = getattr(request, name)
        asks_nothing = value in (None, "", [], {}) or (name == "min_tokens" and value == 0)
        if not asks_nothing:
            raise InvalidParameter(
                f"`{name}` is not supported with beam search. (parameter={name})", param=name
            )
    temperature = request.temperature
    if temperature is None:
        temperature = defaults.get("temperature", 1.0)
    return BeamSearchParams(
        beam_width=request.n,
        max_tokens=max_tokens,
        ignore_eos=request.ignore_eos,
        temperature=temperature,
        length_penalty=request.length_penalty,
        include_stop_str_in_output=request.include_stop_str_in_output,
        skip_special_tokens=request.skip_special_tokens,
    )


def default_max_tokens(defaults: Mapping[str, float]) -> int | None:
    """The model's own limit of new tokens, if it brings one."""
    value = defaults.get("max_tokens", defaults.get("max_new_tokens"))
    return None if value is None else int(value)


def sampling_params(
    request: SamplingFields,
    defaults: Mapping[str, float],
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingParams:
    """Builds the parameters; `max_tokens=None` means up to the window.

    Raises:
        InvalidParameter: a value is outside its limits; `param` names the field.
    """
    chosen: dict[str, Any] = {}
    for name in _DEFAULTED:
        value = getattr(request, name)
        if value is None:
            value = defaults.get(name)
            if value is not None and name == "top_k":
                value = int(value)
        if value is not None:
            chosen[name] = value
    kind = RequestOutputKind.DELTA if request.stream else RequestOutputKind.FINAL_ONLY
    return SamplingParams(
        **chosen,
        n=request.n,
        seed=request.seed,
        stop=request.stop,
        stop_token_ids=request.stop_token_ids,
        bad_words=request.bad_words or None,
        ignore_eos=request.ignore_eos,
        max_tokens=max_tokens,
        min_tokens=request.min_tokens,
        # the ids say how many
        logprobs=None if request.logprob_token_ids is not None else logprobs,
        logprob_token_ids=request.logprob_token_ids,
        prompt_logprobs=prompt_logprobs,
        skip_special_tokens=request.skip_special_tokens,
        spaces_between_special_tokens=request.spaces_between_special_tokens,
        include_stop_str_in_output=request.include_stop_str_in_output,
        output_kind=kind,
        stream_interval=request.stream_interval,
        logit_bias=request.logit_bias,
        allowed_token_ids=request.allowed_token_ids,
        extra_args=request.vllm_xargs,
        repetition_detection=request.repetition_detection,
    )
