"""What a chat's client sees: `chat.completion.chunk` events or one `chat.completion`.

Both are made of the events of the same assemblers: the whole reply is the sum of the stream.

Runs in: API process. Owns: one reply. Knows nothing of: requests, HTTP, the engine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from octavo.api.assembler import ChoiceAssembler, ContentDelta, Event, WholeChoice
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
)
from octavo.api.openai.text_chunk import TextChunk
from octavo.api.openai.usage import UsageCounter
from octavo.api.sse import ServerEvent
from octavo.outputs import RequestOutput


class ChatReply:
    """One reply with `n` choices (`Reply` of `octavo/api/generation.py`).

    Args:
        num_top_logprobs: alternatives per token; None: no logprobs.
        text: shows tokens; needed with logprobs.
        echo: text that stands before each choice.
        keep_text: remember what a stream said, for `log_text`.
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
        keep_text: bool = False,
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
        self._assemblers = [ChoiceAssembler() for _ in range(n)]
        self._wholes = [WholeChoice() for _ in range(n)]
        self._prompt_token_ids: list[int] = []
        self._prompt_logprobs: PromptLogprobs | None = None
        self._has_opened = False
        self._keep_text = keep_text
        self._says_only_text = (
            num_top_logprobs is None and not show_token_ids and not usage_in_chunks
        )
        self._text_chunks: dict[int, TextChunk] = {}  # by choice, if its events say only text
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
        event.usage = self._usage.total(sum(a.num_tokens for a in self._assemblers))
        event.system_fingerprint = self._fingerprint
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
            usage=self._usage.total(sum(a.num_tokens for a in self._assemblers)),
            system_fingerprint=self._fingerprint,
        )
        if self._show_prompt_logprobs:
            response.prompt_logprobs = self._prompt_logprobs
        if self._show_token_ids:
            response.prompt_token_ids = self._prompt_token_ids
        return response

    def log_text(self) -> str:
        """All choices' text (of a stream: with `keep_text`)."""
        return "\n".join(whole.text for whole in self._wholes)

    def _opening(self) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        for index in range(len(self._assemblers)):
            delta = ChatDelta(role=self._role, content="")
            event = self._event([ChatChunkChoice(index=index, delta=delta)])
            if self._show_token_ids and index == 0:
                event.prompt_token_ids = self._prompt_token_ids
            if self._usage_in_chunks:
                event.usage = self._usage.of_choice(0, 0)
            events.append(event)
            if self._echo:
                events.append(self._text_event(index, self._echo))
        return events

    def _chunk(self, index: int, event: Event) -> ServerEvent | None:
        if isinstance(event, ContentDelta):
            if self._says_only_text:
                return self._encoded_text(index, event.text) if event.text else None
            logprobs = self._logprobs(event)
            if not event.text and logprobs is None and not self._show_token_ids:
                return None
            choice = ChatChunkChoice(
                index=index, delta=ChatDelta(content=event.text), logprobs=logprobs
            )
            if self._show_token_ids:
                choice.token_ids = event.token_ids
        else:
            choice = ChatChunkChoice(
                index=index,
                delta=ChatDelta(content=""),
                finish_reason=event.reason,
                stop_reason=event.stop_reason,
            )
        chunk = self._event([choice])
        if choice.finish_reason is not None and not self._usage_at_end:
            chunk.system_fingerprint = self._fingerprint
        if self._usage_in_chunks:
            chunk.usage = self._usage.of_choice(0, self._assemblers[index].num_tokens)
        return chunk

    def _choice(self, index: int, whole: WholeChoice) -> ChatChoice:
        choice = ChatChoice(
            index=index,
            message=ChatMessage(self._role, whole.text),
            logprobs=self._logprobs(whole),
            finish_reason=whole.finish_reason,
            stop_reason=whole.stop_reason,
        )
        if self._show_token_ids:
            choice.token_ids = whole.token_ids
        return choice

    def _logprobs(self, piece: ContentDelta | WholeChoice) -> ChatLogprobs | None:
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

    def _event(self, choices: list[ChatChunkChoice]) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self._id, created=self._created, model=self._model, choices=choices
        )
