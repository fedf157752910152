"""What a completion's client sees: `text_completion` events or one `text_completion`.

Both are made of the events of the same assemblers: the whole reply is the sum of the stream.
Choices are numbered prompt by prompt: `index = prompt_index * n + i`.

Runs in: API process. Owns: one reply. Knows nothing of: requests, HTTP, the engine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from octavo.api.assembler import ChoiceAssembler, ContentDelta, Event, Finish, WholeChoice
from octavo.api.openai.logprobs import (
    TextOffsets,
    TokenText,
    completion_logprobs,
    join_completion_logprobs,
    prompt_logprobs,
    text_of_tokens,
)
from octavo.api.openai.protocol import (
    CompletionChoice,
    CompletionChunk,
    CompletionLogprobs,
    CompletionResponse,
)
from octavo.api.openai.text_chunk import TextChunk
from octavo.api.openai.usage import UsageCounter
from octavo.api.sse import ServerEvent
from octavo.outputs import PositionLogprobs, RequestOutput


class _Prompt:
    """One prompt of the request: its text and logprobs are known with its first outputs."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids
        self.text: str | None = None
        self.logprobs: list[PositionLogprobs | None] | None = None
        self.is_open = False
        self.held: list[RequestOutput] = []  # outputs that came before the prompt's logprobs


class CompletionReply:
    """One reply with `n` choices for each prompt (`Reply` of `octavo/api/generation.py`).

    Args:
        num_top_logprobs: alternatives per token; None: no logprobs.
        text: shows tokens.
        echo: each choice begins with its prompt.
        keep_text: remember what a stream said, for `log_text`.
    """

    def __init__(
        self,
        *,
        response_id: str,
        model: str,
        fingerprint: str,
        num_prompts: int,
        n: int,
        usage: UsageCounter,
        usage_at_end: bool,
        usage_in_chunks: bool,
        num_top_logprobs: int | None,
        text: TokenText,
        skip_special_tokens: bool,
        echo: bool,
        show_token_ids: bool,
        show_prompt_logprobs: bool,
        keep_text: bool = False,
    ) -> None:
        self._id = response_id
        self._created = int(time.time())
        self._model = model
        self._fingerprint = fingerprint
        self._n = n
        self._usage = usage
        self._usage_at_end = usage_at_end
        self._usage_in_chunks = usage_in_chunks
        self._num_top_logprobs = num_top_logprobs
        self._text = text
        self._echo = echo
        self._show_token_ids = show_token_ids
        self._show_prompt_logprobs = show_prompt_logprobs
        self._keep_text = keep_text
        num_choices = num_prompts * n
        self._assemblers = [ChoiceAssembler() for _ in range(num_choices)]
        self._wholes = [WholeChoice() for _ in range(num_choices)]
        self._skip_special_tokens = skip_special_tokens
        self._offsets: list[TextOffsets] = []  # with logprobs: of each choice
        self._prompts: list[_Prompt] = []
        self._says_only_text = (
            num_top_logprobs is None and not show_token_ids and not usage_in_chunks
        )
        self._text_chunks: dict[int, TextChunk] = {}  # by choice, if its events say only text

    def begin(self, prompt_token_ids: Sequence[list[int]]) -> None:
        """Takes the prompts as the engine sees them."""
        self._usage.begin(prompt_token_ids)
        self._prompts = [_Prompt(ids) for ids in prompt_token_ids]
        if self._num_top_logprobs is not None:
            self._offsets = [
                TextOffsets(
                    self._text.tokenizer, ids, skip_special_tokens=self._skip_special_tokens
                )
                for ids in prompt_token_ids
                for _ in range(self._n)
            ]

    def chunks(self, prompt_index: int, output: RequestOutput) -> list[ServerEvent]:
        """New events; the first call for a prompt also sends its echo."""
        events: list[ServerEvent] = []
        prompt = self._see(prompt_index, output)
        if self._echo and self._num_top_logprobs is not None and prompt.logprobs is None:
            prompt.held.append(output)
            return events
        if not prompt.is_open:
            prompt.is_open = True
            if self._echo:
                events += self._echo_chunks(prompt_index)
        outputs = [output]
        if prompt.held:
            outputs, prompt.held = [*prompt.held, output], []
        for ready in outputs:
            for completion in ready.outputs:
                index = prompt_index * self._n + completion.index
                for event in self._assemblers[index].push(completion):
                    if self._keep_text:
                        self._wholes[index].add(event)
                    if (chunk := self._chunk(prompt_index, index, event)) is not None:
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
        event.metrics = self._usage.metrics
        return [event]

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Takes an output into the whole reply."""
        self._see(prompt_index, output)
        for completion in output.outputs:
            index = prompt_index * self._n + completion.index
            for event in self._assemblers[index].push(completion):
                self._wholes[index].add(event)

    def whole(self) -> CompletionResponse:
        """The whole reply."""
        assert all(a.is_finished for a in self._assemblers), "a choice did not end"
        return CompletionResponse(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[self._choice(index, whole) for index, whole in enumerate(self._wholes)],
            usage=self._usage.total(sum(a.num_tokens for a in self._assemblers)),
            system_fingerprint=self._fingerprint,
            metrics=self._usage.metrics,
        )

    def log_text(self) -> str:
        """All choices' text (of a stream: with `keep_text`)."""
        return "\n".join(whole.text for whole in self._wholes)

    def _see(self, prompt_index: int, output: RequestOutput) -> _Prompt:
        self._usage.see(prompt_index, output)
        prompt = self._prompts[prompt_index]
        if self._echo and prompt.text is None:
            prompt.text = output.prompt
            if prompt.text is None:  # it came as token ids
                prompt.text = text_of_tokens(self._text.tokenizer, prompt.token_ids)
        if prompt.logprobs is None:
            prompt.logprobs = output.prompt_logprobs
        return prompt

    def _echo_chunks(self, prompt_index: int) -> list[ServerEvent]:
        prompt = self._prompts[prompt_index]
        events: list[ServerEvent] = []
        for i in range(self._n):
            index = prompt_index * self._n + i
            choice = CompletionChoice(
                index=index, text=prompt.text or "", logprobs=self._echo_logprobs(index, prompt)
            )
            if self._show_token_ids:
                choice.prompt_token_ids = prompt.token_ids
                choice.token_ids = []
            events.append(self._event([choice]))
        return events

    def _echo_logprobs(self, index: int, prompt: _Prompt) -> CompletionLogprobs | None:
        if self._num_top_logprobs is None:
            return None
        assert prompt.logprobs is not None
        assert prompt.text is not None
        return completion_logprobs(
            prompt.token_ids,
            prompt.logprobs,
            self._offsets[index].push_prompt(prompt.text),
            num_top=self._num_top_logprobs,
            text=self._text,
        )

    def _chunk(self, prompt_index: int, index: int, event: Event) -> ServerEvent | None:
        if isinstance(event, ContentDelta):
            if self._says_only_text:
                return self._encoded_text(index, event.text) if event.text else None
            logprobs = self._logprobs(index, event)
            if not event.text and logprobs is None and not self._show_token_ids:
                return None
            choice = CompletionChoice(index=index, text=event.text, logprobs=logprobs)
            if self._show_token_ids:
                choice.token_ids = event.token_ids
        else:
            assert isinstance(event, Finish), "completions are not parsed"
            choice = CompletionChoice(
                index=index,
                text="",
                finish_reason=event.reason,
                stop_reason=event.stop_reason,
            )
        chunk = self._event([choice])
        if choice.finish_reason is not None and not self._usage_at_end:
            chunk.system_fingerprint = self._fingerprint
        if self._usage_in_chunks:
            chunk.usage = self._usage.of_choice(prompt_index, self._assemblers[index].num_tokens)
        return chunk

    def _choice(self, index: int, whole: WholeChoice) -> CompletionChoice:
        prompt = self._prompts[index // self._n]
        parts = []
        if self._num_top_logprobs is not None:
            if self._echo:
                parts.append(self._echo_logprobs(index, prompt))
            parts.append(self._logprobs(index, whole))
        choice = CompletionChoice(
            index=index,
            text=(prompt.text or "") + whole.text if self._echo else whole.text,
            logprobs=join_completion_logprobs(p for p in parts if p) if parts else None,
            finish_reason=whole.finish_reason,
            stop_reason=whole.stop_reason,
        )
        if self._show_token_ids:
            choice.prompt_token_ids = prompt.token_ids
            choice.token_ids = whole.token_ids
        if self._show_prompt_logprobs:
            choice.prompt_logprobs = (
                None if prompt.logprobs is None else prompt_logprobs(prompt.logprobs)
            )
        return choice

    def _logprobs(self, index: int, piece: ContentDelta | WholeChoice) -> CompletionLogprobs | None:
        if self._num_top_logprobs is None:
            return None
        offsets = self._offsets[index]
        return completion_logprobs(
            piece.token_ids,
            piece.logprobs or [],
            [offsets.push(token_id) for token_id in piece.token_ids],
            num_top=self._num_top_logprobs,
            text=self._text,
        )

    def _encoded_text(self, index: int, text: str) -> ServerEvent:
        chunk = self._text_chunks.get(index)
        if chunk is None:
            chunk = self._text_chunks[index] = TextChunk(partial(self._text_event, index))
        return chunk.encode(text)

    def _text_event(self, index: int, text: str) -> CompletionChunk:
        return self._event([CompletionChoice(index=index, text=text)])

    def _event(self, choices: list[CompletionChoice]) -> CompletionChunk:
        return CompletionChunk(
            id=self._id, created=self._created, model=self._model, choices=choices
        )
