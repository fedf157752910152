"""What a chat's client sees: `chat.completion.chunk` events or one `chat.completion`.

Both are made of the events of the same assemblers: the whole reply is the sum of the stream.

Runs in: API process. Owns: one reply. Knows nothing of: requests, HTTP, the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import UNSET, UnsetType

from octavo.api.assembler import (
    ChoiceAssembler,
    ContentDelta,
    Delta,
    Event,
    Finish,
    Parsing,
    ReasoningDelta,
    WholeCall,
    WholeChoice,
)
from octavo.api.openai.logprobs import TokenText, chat_logprobs, prompt_logprobs
from octavo.api.openai.protocol import (
    ChatChoice,
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatCompletionResponse,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    PromptLogprobs,
    Usage,
)
from octavo.api.openai.text_chunk import TextChunk
from octavo.api.openai.tool_protocol import (
    CustomCall,
    CustomCallDelta,
    FunctionCall,
    FunctionCallDelta,
    ToolCall,
    ToolCallDelta,
)
from octavo.api.openai.usage import UsageCounter
from octavo.api.sse import ServerEvent
from octavo.outputs import RequestOutput


class ChatReply:
    """One reply with `n` choices (`Reply` of `octavo/api/generation.py`).

    Args:
        num_top_logprobs: alternatives per token; None: no logprobs.
        text: shows tokens; needed with logprobs.
        echo: text that stands before each choice.
        prompt_text: is told; None: it is not.
        keep_text: remember what a stream said, for `log_text`.
        make_parsing: how the text of a choice is read, made anew for each; None: all is content.
        show_reasoning: without it, reasoning is left out.
    """

    def __init__(
        self,
        *,
        response_id: str,
        model: str,
        fingerprint: str,
        role: str,
        n: int,
        usage: UsageCounter,
        usage_at_end: bool,
        usage_in_chunks: bool,
        num_top_logprobs: int | None,
        text: TokenText | None,
        echo: str,
        show_token_ids: bool,
        show_prompt_logprobs: bool,
        prompt_text: str | None = None,
        keep_text: bool = False,
        make_parsing: Callable[[], Parsing] | None = None,
        show_reasoning: bool = True,
    ) -> None:
        self._id = response_id
        self._created = int(time.time())
        self._model = model
        self._fingerprint = fingerprint
        self._role = role
        self._usage = usage
        self._usage_at_end = usage_at_end
        self._usage_in_chunks = usage_in_chunks
        self._num_top_logprobs = num_top_logprobs
        self._text = text
        self._echo = echo
        self._show_token_ids = show_token_ids
        self._show_prompt_logprobs = show_prompt_logprobs
        self._prompt_text = prompt_text
        self._show_reasoning = show_reasoning
        self._assemblers = [
            ChoiceAssembler(None if make_parsing is None else make_parsing()) for _ in range(n)
        ]
        self._wholes = [WholeChoice() for _ in range(n)]
        self._prompt_token_ids: list[int] = []
        self._prompt_logprobs: PromptLogprobs | None = None
        self._has_opened = False
        self._keep_text = keep_text
        self._says_only_text = (
            num_top_logprobs is None and not show_token_ids and not usage_in_chunks
        )
        # by choice, if its events say only text: of content, of reasoning
        self._text_chunks: dict[int, TextChunk] = {}
        self._reasoning_chunks: dict[int, TextChunk] = {}
        if echo:
            for whole in self._wholes:
                whole.add(ContentDelta(echo, []))

    def begin(self, prompt_token_ids: Sequence[list[int]]) -> None:
        """Takes the prompt as the engine sees it."""
        self._usage.begin(prompt_token_ids)
        self._prompt_token_ids = prompt_token_ids[0]

    def chunks(self, prompt_index: int, output: RequestOutput) -> list[ServerEvent]:
        """New events; the first call also opens every choice."""
        self._usage.see(prompt_index, output)
        events: list[ServerEvent] = []
        if not self._has_opened:
            self._has_opened = True
            events += self._opening()
        for completion in output.outputs:
            for event in self._assemblers[completion.index].push(completion):
                if self._keep_text:
                    self._wholes[completion.index].add(event)
                chunk = self._chunk(completion.index, event)
                if chunk is not None:
                    events.append(chunk)
        return events

    def closing(self) -> list[ServerEvent]:
        """The usage event, if there is one."""
        assert all(a.is_finished for a in self._assemblers), "a choice did not end"
        if not self._usage_at_end:
            return []
        event = self._event([])
        event.usage = self._total_usage()
        event.system_fingerprint = self._fingerprint
        event.metrics = self._usage.metrics
        return [event]

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Takes an output into the whole reply."""
        self._usage.see(prompt_index, output)
        if self._show_prompt_logprobs and output.prompt_logprobs is not None:
            self._prompt_logprobs = prompt_logprobs(output.prompt_logprobs)
        for completion in output.outputs:
            for event in self._assemblers[completion.index].push(completion):
                self._wholes[completion.index].add(event)

    def whole(self) -> ChatCompletionResponse:
        """The whole reply."""
        assert all(a.is_finished for a in self._assemblers), "a choice did not end"
        response = ChatCompletionResponse(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[self._choice(index, whole) for index, whole in enumerate(self._wholes)],
            usage=self._total_usage(),
            system_fingerprint=self._fingerprint,
            metrics=self._usage.metrics,
        )
        if self._show_prompt_logprobs:
            response.prompt_logprobs = self._prompt_logprobs
        if self._show_token_ids:
            response.prompt_token_ids = self._prompt_token_ids
        if self._prompt_text is not None:
            response.prompt_text = self._prompt_text
        return response

    def log_text(self) -> str:
        """What all choices said (of a stream: with `keep_text`)."""
        return "\n".join(map(_log_text, self._wholes))

    def _total_usage(self) -> Usage:
        return self._usage.total(
            sum(a.num_tokens for a in self._assemblers),
            sum(a.num_reasoning_tokens for a in self._assemblers),
        )

    def _opening(self) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        for index in range(len(self._assemblers)):
            delta = ChatDelta(role=self._role, content="")
            event = self._event([ChatChunkChoice(index=index, delta=delta)])
            if self._show_token_ids and index == 0:
                event.prompt_token_ids = self._prompt_token_ids
            if self._prompt_text is not None and index == 0:
                event.prompt_text = self._prompt_text
            if self._usage_in_chunks:
                event.usage = self._usage.of_choice(0, 0)
            events.append(event)
            if self._echo:
                events.append(self._text_event(index, self._echo))
        return events

    def _chunk(self, index: int, event: Event) -> ServerEvent | None:
        if isinstance(event, Finish):
            choice = ChatChunkChoice(
                index=index,
                delta=self._last_delta(index),
                finish_reason=event.reason,
                stop_reason=event.stop_reason,
            )
        else:
            if self._says_only_text:
                if isinstance(event, ContentDelta):
                    return self._encoded_text(index, event.text) if event.text else None
                if isinstance(event, ReasoningDelta):
                    return self._encoded_reasoning(index, event.text)
            logprobs = self._logprobs(event) if event.token_ids else None
            delta = self._delta(event)
            if delta is None:
                if logprobs is None and not self._show_token_ids:
                    return None
                delta = ChatDelta(content="")
            choice = ChatChunkChoice(index=index, delta=delta, logprobs=logprobs)
            if self._show_token_ids:
                choice.token_ids = event.token_ids
        chunk = self._event([choice])
        if choice.finish_reason is not None and not self._usage_at_end:
            chunk.system_fingerprint = self._fingerprint
        if self._usage_in_chunks:
            assembler = self._assemblers[index]
            chunk.usage = self._usage.of_choice(
                0, assembler.num_tokens, assembler.num_reasoning_tokens
            )
        return chunk

    def _delta(self, event: Delta) -> ChatDelta | None:
        """What a delta says on the wire, None if it says nothing."""
        if isinstance(event, ContentDelta):
            return ChatDelta(content=event.text) if event.text else None
        if isinstance(event, ReasoningDelta):
            return _reasoning_delta(event.text) if self._show_reasoning and event.text else None
        call = ToolCallDelta(event.index)
        name: str | UnsetType = UNSET
        if event.name is not None:
            assert event.id is not None
            name, call.id, call.type = event.name, event.id, "function"
        if event.is_text:
            call.custom = CustomCallDelta(name, event.arguments)
            call.type = "custom" if event.name is not None else UNSET
        else:
            call.function = FunctionCallDelta(name, event.arguments)
        return ChatDelta(tool_calls=[call])

    def _last_delta(self, index: int) -> ChatDelta:
        """A reply of calls alone has no content: not even an empty text at its end."""
        return ChatDelta() if self._assemblers[index].has_called else ChatDelta(content="")

    def _choice(self, index: int, whole: WholeChoice) -> ChatChoice:
        message = ChatMessage(self._role, whole.text)
        if whole.reasoning or whole.tool_calls:
            message.content = whole.text or None  # a reply may be that alone
        if whole.reasoning and self._show_reasoning:
            message.reasoning = message.reasoning_content = whole.reasoning
        if whole.tool_calls:
            message.tool_calls = list(map(_tool_call, whole.tool_calls))
        choice = ChatChoice(
            index=index,
            message=message,
            logprobs=self._logprobs(whole),
            finish_reason=whole.finish_reason,
            stop_reason=whole.stop_reason,
        )
        if self._show_token_ids:
            choice.token_ids = whole.token_ids
        return choice

    def _logprobs(self, piece: Delta | WholeChoice) -> ChatLogprobs | None:
        if self._num_top_logprobs is None:
            return None
        assert self._text is not None
        return chat_logprobs(
            piece.token_ids,
            piece.logprobs or [],
            num_top=self._num_top_logprobs,
            text=self._text,
        )

    def _encoded_text(self, index: int, text: str) -> ServerEvent:
        chunk = self._text_chunks.get(index)
        if chunk is None:
            chunk = self._text_chunks[index] = TextChunk(partial(self._text_event, index))
        return chunk.encode(text)

    def _text_event(self, index: int, text: str) -> ChatCompletionChunk:
        return self._event([ChatChunkChoice(index=index, delta=ChatDelta(content=text))])

    def _encoded_reasoning(self, index: int, text: str) -> ServerEvent | None:
        if not text or not self._show_reasoning:
            return None
        chunk = self._reasoning_chunks.get(index)
        if chunk is None:
            make = partial(self._reasoning_event, index)
            chunk = self._reasoning_chunks[index] = TextChunk(make)
        return chunk.encode(text)

    def _reasoning_event(self, index: int, text: str) -> ChatCompletionChunk:
        return self._event([ChatChunkChoice(index=index, delta=_reasoning_delta(text))])

    def _event(self, choices: list[ChatChunkChoice]) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self._id, created=self._created, model=self._model, choices=choices
        )


def _tool_call(call: WholeCall) -> ToolCall:
    if call.is_text:
        return ToolCall(call.id, type="custom", custom=CustomCall(call.name, call.arguments))
    return ToolCall(call.id, FunctionCall(call.name, call.arguments))


def _reasoning_delta(text: str) -> ChatDelta:
    return ChatDelta(reasoning=text, reasoning_content=text)


def _log_text(whole: WholeChoice) -> str:
    parts = [whole.text]
    if whole.reasoning:
        parts.insert(0, f"[reasoning: {whole.reasoning}]")
    if whole.tool_calls:
        calls = ", ".join(f"{call.name}({call.arguments})" for call in whole.tool_calls)
        parts.append(f"[tool_calls: {calls}]")
    return " ".join(filter(None, parts))
