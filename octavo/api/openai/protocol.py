"""The requests and responses of the OpenAI routes, as msgspec structs with vLLM's field names.

A field that is None was not given (or given as null): the model's default applies, then the
neutral one. Fields that clients know and this version does not serve are in `unsupported.py`.

Runs in: API process. Owns: names, types and defaults on the wire.
Knows nothing of: the engine, HTTP.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from octavo.api.openai.tool_protocol import ToolCall, ToolCallDelta, ToolChoice
from octavo.sampling_params import (
    MAX_N,
    MAX_STREAM_INTERVAL,
    MAX_TEMPERATURE,
    RepetitionDetectionParams,
)

# ---- requests -----------------------------------------------------------------------------------

# Limits in `extra_json_schema` are for `/openapi.json`; `SamplingParams` checks them, in its words.


def _within(low: float, high: float | None = None, **more: Any) -> Meta:
    limits = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
    return Meta(extra_json_schema={**limits, **more})


_ABOVE_0 = Meta(extra_json_schema={"exclusiveMinimum": 0})
_NOT_EMPTY = Meta(extra_json_schema={"minLength": 1})
HAS_ITEMS = Meta(extra_json_schema={"minItems": 1})
_KEYS_ARE_IDS = Meta(extra_json_schema={"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"}})
_IS_PRINTABLE = Meta(extra_json_schema={"pattern": "^[ -~]+$", "minLength": 1, "maxLength": 128})
#: what travels to the engine unchecked must fit in 64 bits
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Meta(extra_json_schema={"minimum": 0})]
ExtraArg = bool | Int64 | float | str


class StreamOptions(msgspec.Struct, kw_only=True):
    """Options of a streamed response."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class JsonSchemaFormat(msgspec.Struct, kw_only=True):
    """A schema with the name that clients give it. `strict` changes nothing: it is always kept."""

    schema: dict[str, Any] | bool | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """OpenAI's way to say what the output must be."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None
    # of type structural_tag, vLLM's two forms
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None
    format: dict[str, Any] | None = None


Message = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={
            "required": ["role"],
            "properties": {"role": {"type": "string", "minLength": 1}},
        }
    ),
]
Messages = Annotated[list[Message], HAS_ITEMS]


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """What the output must be: exactly one of the first six."""

    json: Annotated[str | dict[str, Any] | bool, Meta(description="a JSON schema")] | None = None
    regex: Annotated[str, _NOT_EMPTY] | None = None
    choice: Annotated[list[Annotated[str, _NOT_EMPTY]], HAS_ITEMS] | None = None
    grammar: Annotated[str, Meta(description="Lark, or GBNF (EBNF of llama.cpp)")] | None = None
    json_object: Annotated[bool, Meta(description="any JSON object")] | None = None
    structural_tag: str | dict[str, Any] | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None


class SamplingFields(msgspec.Struct, kw_only=True):
    """What completions and chats have in common."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, _within(1, MAX_N)] = 1
    temperature: Annotated[float, _within(0, MAX_TEMPERATURE)] | None = None
    top_p: Annotated[float, _ABOVE_0, _within(0, 1)] | None = None
    top_k: Annotated[int, _within(-1, description="0 and -1 switch it off")] | None = None
    min_p: Annotated[float, _within(0, 1)] | None = None
    seed: Annotated[int, _within(-(2**63), 2**64 - 1)] | None = None
    presence_penalty: Annotated[float, _within(-2, 2)] | None = None
    frequency_penalty: Annotated[float, _within(-2, 2)] | None = None
    repetition_penalty: Annotated[float, _ABOVE_0] | None = None
    logit_bias: Annotated[dict[int, float], _KEYS_ARE_IDS] | None = None
    stop: Annotated[str, _NOT_EMPTY] | list[Annotated[str, _NOT_EMPTY]] | None = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: Annotated[int, _within(0)] | None = None
    min_tokens: Annotated[int, _within(0)] = 0
    bad_words: list[Annotated[str, _NOT_EMPTY]] | None = None
    allowed_token_ids: Annotated[list[TokenId], HAS_ITEMS] | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    prompt_logprobs: Annotated[int, _within(-1)] | None = None
    logprob_token_ids: Annotated[list[TokenId], HAS_ITEMS] | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    stream_interval: Annotated[int, _within(1, MAX_STREAM_INTERVAL)] | None = None
    use_beam_search: Annotated[bool, Meta(description="n is the width of the beam")] = False
    length_penalty: Annotated[float, Meta(description="of a beam search: -100 to 100")] = 1.0
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None
    truncation_side: Literal["left", "right"] = "left"
    priority: Int64 = 0
    request_id: Annotated[str, _IS_PRINTABLE] | None = None
    thinking_token_budget: Annotated[int, _within(-1, description="-1: no limit")] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool = False
    vllm_xargs: dict[str, ExtraArg | list[ExtraArg]] | None = None
    structured_outputs: StructuredOutputs | None = None
    response_format: ResponseFormat | None = None


_TEXT = {"type": "string", "minLength": 1}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPTS = Meta(
    extra_json_schema={
        "anyOf": [_IDS, {"type": "array", "items": {"anyOf": [_TEXT, _IDS]}, "minItems": 1}]
    }
)
CompletionPrompt = Annotated[
    Annotated[str, _NOT_EMPTY] | Annotated[list[Any], _PROMPTS],
    Meta(description="text, token ids, or a list of either"),
]


class CompletionRequest(SamplingFields, kw_only=True):
    """Body of `POST /v1/completions`."""

    prompt: CompletionPrompt
    logprobs: Annotated[int, _within(-1)] | None = None
    echo: bool = False
    add_special_tokens: bool = True


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ChatCompletionRequest(SamplingFields, kw_only=True):
    """Body of `POST /v1/chat/completions`."""

    # the first eight fields are those of `ChatFields` (octavo/api/openai/chat_prompt.py)

    messages: Messages
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_completion_tokens: Annotated[int, _within(1, description="wins over max_tokens")] | None = (
        None
    )
    logprobs: bool = False
    top_logprobs: Annotated[int, _within(0)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: Annotated[bool, Meta(description="false: at most one call")] | None = None
    include_reasoning: bool = True
    reasoning_effort: ReasoningEffort | None = None
    echo: bool = False
    return_prompt_text: bool = False


class TokenizeCompletionRequest(msgspec.Struct, kw_only=True):
    """Body of `POST /tokenize` for text."""

    prompt: str
    model: str = ""
    add_special_tokens: bool = True
    return_token_strs: bool = False


class TokenizeChatRequest(msgspec.Struct, kw_only=True):
    """Body of `POST /tokenize` for messages."""

    # the first eight fields are those of `ChatFields` (octavo/api/openai/chat_prompt.py)

    messages: Messages
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    model: str = ""
    return_token_strs: bool = False


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Body of `POST /detokenize`."""

    tokens: list[TokenId]
    model: str = ""


# ---- parts of responses -------------------------------------------------------------------------


class PromptTokensDetails(msgspec.Struct):
    """Of the prompt's tokens, those found in the prefix cache."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    """Of the outputs' tokens, those of reasoning."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """Tokens of a request: each prompt once, the outputs of all choices."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType = UNSET
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


class RequestMetrics(msgspec.Struct):
    """How long a reply of one choice took; null: nothing that it could be told from happened.

    Times to the first token and until it was scheduled are the engine's, `generation_time_ms` is
    from the first token to the last; `tokens_per_second` counts from when it was scheduled.
    """

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None
    tokens_per_second: float | None = None


class PromptLogprob(msgspec.Struct):
    """One candidate at one position of the prompt."""

    logprob: float
    rank: int | None
    decoded_token: str | None


PromptLogprobs = list[dict[str, PromptLogprob] | None]  # token id -> candidate


class CompletionLogprobs(msgspec.Struct):
    """Log probabilities of a completion: four lists of equal length."""

    text_offset: list[int] = []
    token_logprobs: list[float | None] = []
    tokens: list[str] = []
    top_logprobs: list[dict[str, float] | None] = []


class TopLogprob(msgspec.Struct):
    """One candidate at one position of a chat's reply."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(msgspec.Struct):
    """One token of a chat's reply and its alternatives."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """Log probabilities of a chat's reply, or of one piece of it."""

    content: list[TokenLogprob]


# ---- responses ----------------------------------------------------------------------------------


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One output of a completion."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET


class CompletionResponse(msgspec.Struct, kw_only=True):
    """Answer of `POST /v1/completions`."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    system_fingerprint: str
    metrics: RequestMetrics | UnsetType = UNSET


class CompletionChunk(msgspec.Struct, kw_only=True):
    """One event of a streamed completion."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType = UNSET
    system_fingerprint: str | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET


class ChatMessage(msgspec.Struct):
    """The reply. Reasoning has two names: vLLM's, and the one of its older versions."""

    role: str
    content: str | None
    refusal: str | None = None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, kw_only=True):
    """One reply of a chat."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletionResponse(msgspec.Struct, kw_only=True):
    """Answer of `POST /v1/chat/completions`."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str
    metrics: RequestMetrics | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET


class ChatDelta(msgspec.Struct):
    """What is new in a reply."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    """What is new in one reply of a chat."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletionChunk(msgspec.Struct, kw_only=True):
    """One event of a streamed chat."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType = UNSET
    system_fingerprint: str | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET


class ModelPermission(msgspec.Struct, kw_only=True):
    """What may be done with a model; all clients may do the same."""

    id: str
    object: Literal["model_permission"] = "model_permission"
    created: int
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: str | None = None
    is_blocking: bool = False


class ModelCard(msgspec.Struct, kw_only=True):
    """One served name."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "octavo"
    root: str
    parent: str | None = None
    max_model_len: int
    permission: list[ModelPermission]


class ModelList(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/models`."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class TokenizeResponse(msgspec.Struct):
    """Answer of `POST /tokenize`."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeResponse(msgspec.Struct):
    """Answer of `POST /detokenize`."""

    prompt: str
