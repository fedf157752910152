"""Log probabilities in the two shapes of the OpenAI API.

Runs in: API process. Owns: the shapes and the finite floor. Knows nothing of: the engine, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from octavo.api.openai.protocol import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)
from octavo.outputs import Logprob, PositionLogprobs

if TYPE_CHECKING:  # the launcher decides when tokenizers are loaded
    from octavo.tokenizer.tokenizer import Tokenizer

FLOOR = -9999.0  # instead of -inf, which JSON cannot say
_NEAR = 8  # characters of a prompt's text that a normalizer may have taken away in one place


class TokenText:
    """How tokens are shown.

    Args:
        tokenizer: gives text and bytes.
        as_ids: show `token_id:N` instead of text (`--return-tokens-as-token-ids`).
    """

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool) -> None:
        self.tokenizer = tokenizer
        self._as_ids = as_ids

    def show(self, token_id: int, candidate: Logprob | None = None) -> str:
        """The token's text; what is not valid UTF-8 alone is U+FFFD."""
        if self._as_ids:
            return f"token_id:{token_id}"
        if candidate is not None and candidate.decoded_token is not None:
            return candidate.decoded_token
        return self.tokenizer.token_bytes(token_id).decode("utf-8", "replace")

    def bytes_of(self, token_id: int) -> list[int]:
        """The token's own bytes, also of half a character."""
        return list(self.tokenizer.token_bytes(token_id))


class TextOffsets:
    """Where each token begins in the joined text, in characters.

    A token that completes no character begins where the next character will be. Tokens that the
    text does not show (special ones, if skipped) take no room.

    Args:
        tokenizer: as the text was made with.
        prompt_ids: what comes before the first token; a character that it leaves unfinished belongs
            to the output, as in the text.
        skip_special_tokens: the output does not show special tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int], *, skip_special_tokens: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._prompt_ids = prompt_ids
        self._stream = tokenizer.decode_stream(prompt_ids, skip_special_tokens)
        self._length = 0

    def push(self, token_id: int) -> int:
        """The offset of the next token."""
        offset = self._length
        self._length += len(self._stream.step(token_id))
        return offset

    def push_prompt(self, text: str) -> list[int]:
        """Offsets of the tokens of the prompt, which stands before the output as `text`.

        The text may differ from what its tokens say: a BOS that the tokenizer has added is not in
        it, and a normalizer may have made one character of two. So offsets follow the text: they
        go to where the next token's text is found, if that is near.
        """
        special = self._tokenizer.special_ids
        stream = self._tokenizer.decode_stream([], False)
        offsets, length = [], 0
        for token_id in self._prompt_ids:
            if token_id in special:
                spelled = self._tokenizer.token_bytes(token_id).decode("utf-8", "replace")
                if not text.startswith(spelled, length):
                    offsets.append(length)
                    continue
            piece = stream.step(token_id)
            found = text.find(piece, length, length + len(piece) + _NEAR) if piece else -1
            length = min(max(length, found), len(text))
            offsets.append(length)
            length = min(length + len(piece), len(text))
        self._length = len(text)
        return offsets


def text_of_tokens(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """The whole text of a prompt given as token ids, special tokens shown. A character that its end
    leaves unfinished is not in it: the output says it, or nobody does."""
    stream = tokenizer.decode_stream([], False)
    return "".join(map(stream.step, token_ids))


def top_candidates(position: PositionLogprobs, num: int) -> list[tuple[int, Logprob]]:
    """The `num` most likely candidates of a position."""
    if num <= 0:
        return []
    ranked = sorted(
        position.items(), key=lambda item: item[1].rank if item[1].rank is not None else 0
    )
    return ranked[:num]


def chat_logprobs(
    token_ids: Sequence[int],
    positions: Sequence[PositionLogprobs],
    *,
    num_top: int,
    text: TokenText,
) -> ChatLogprobs:
    """One entry per token of a reply."""
    content = []
    for token_id, position in zip(token_ids, positions, strict=True):
        chosen = position[token_id]
        top = [
            TopLogprob(text.show(i, lp), max(lp.logprob, FLOOR), text.bytes_of(i))
            for i, lp in top_candidates(position, num_top)
        ]
        content.append(
            TokenLogprob(
                text.show(token_id, chosen),
                max(chosen.logprob, FLOOR),
                text.bytes_of(token_id),
                top,
            )
        )
    return ChatLogprobs(content)


def completion_logprobs(
    token_ids: Sequence[int],
    positions: Iterable[PositionLogprobs | None],
    offsets: Sequence[int],
    *,
    num_top: int,
    text: TokenText,
) -> CompletionLogprobs:
    """One entry per token; a position without candidates (the first of a prompt) gives nulls.

    `top_logprobs` holds the `num_top` most likely tokens and the chosen one, so up to one more.
    """
    result = CompletionLogprobs(text_offset=list(offsets))
    for token_id, position in zip(token_ids, positions, strict=True):
        if position is None:
            result.tokens.append(text.show(token_id))
            result.token_logprobs.append(None)
            result.top_logprobs.append(None)
            continue
        chosen = position[token_id]
        result.tokens.append(text.show(token_id, chosen))
        result.token_logprobs.append(max(chosen.logprob, FLOOR))
        if num_top <= 0:
            result.top_logprobs.append(None)
            continue
        top: dict[str, float] = {}
        for i, candidate in [*top_candidates(position, num_top), (token_id, chosen)]:
            # two tokens may look the same (halves of characters): the likelier one is shown
            top.setdefault(text.show(i, candidate), max(candidate.logprob, FLOOR))
        result.top_logprobs.append(top)
    return result


def join_completion_logprobs(parts: Iterable[CompletionLogprobs]) -> CompletionLogprobs:
    """The parts one after the other."""
    joined = CompletionLogprobs()
    for part in parts:
        joined.text_offset += part.text_offset
        joined.token_logprobs += part.token_logprobs
        joined.tokens += part.tokens
        joined.top_logprobs += part.top_logprobs
    return joined


def prompt_logprobs(positions: Sequence[PositionLogprobs | None]) -> PromptLogprobs:
    """`prompt_logprobs` of a response: per position a map from token id to candidate."""
    return [
        None
        if position is None
        else {
            str(token_id): PromptLogprob(max(lp.logprob, FLOOR), lp.rank, lp.decoded_token)
            for token_id, lp in position.items()
        }
        for position in positions
    ]
