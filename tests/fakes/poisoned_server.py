"""`python -m tests.fakes.poisoned_server serve ...`: the `octavo` command with faults in it.

The core is `poisoned_core.py`; in the API process making the output fails where a request's output
has the token `DETOKENIZER_FAULT` (its text), `LOGPROBS_FAULT` (its log-probabilities) or
`REPLY_FAULT` (its JSON), and matching stop strings where one is `STOP_FAULT`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from octavo.cli.main import main as octavo
from tests.fakes.poisoned_core import TARGET

DETOKENIZER_FAULT, LOGPROBS_FAULT, REPLY_FAULT = 201, 202, 203
STOP_FAULT = "stop-fault"


class _Bug(RuntimeError):
    """What nobody foresees."""

    def __init__(self) -> None:
        super().__init__("as asked")


def plant() -> None:
    """Puts the faults where they belong."""
    import octavo.api.openai.completions as completions
    import octavo.frontend.detokenizer as detokenizer
    import octavo.frontend.output_processor as output_processor
    import octavo.launch.serve as serve
    from octavo.api.openai.completion_reply import CompletionReply
    from octavo.frontend.logprobs import LogprobsDecoder
    from octavo.frontend.stop_matcher import StopMatcher
    from octavo.outputs import RequestOutput
    from octavo.tokenizer.decode_stream import DecodeStream

    serve.CORE_TARGET = TARGET
    decode = DecodeStream.step

    def step(stream: DecodeStream, token_id: int) -> str:
        if token_id == DETOKENIZER_FAULT:
            raise _Bug
        return decode(stream, token_id)

    DecodeStream.step = step  # type: ignore[method-assign]

    class FaultyStopMatcher(StopMatcher):
        def __init__(self, stop_strings: Sequence[str]) -> None:
            super().__init__(stop_strings)
            self.fails = STOP_FAULT in stop_strings

        def feed(self, piece: str, *, is_counted: bool = True) -> Any:
            if self.fails:
                raise _Bug
            return super().feed(piece, is_counted=is_counted)

    detokenizer.StopMatcher = FaultyStopMatcher  # type: ignore[misc]

    class FaultyLogprobs(LogprobsDecoder):
        def decode(self, position: Any) -> Any:
            if position.token_ids[0] == LOGPROBS_FAULT:
                raise _Bug
            return super().decode(position)

    output_processor.LogprobsDecoder = FaultyLogprobs  # type: ignore[misc]

    class FaultyReply(CompletionReply):
        def chunks(self, prompt_index: int, output: RequestOutput) -> Any:
            _look(output)
            return super().chunks(prompt_index, output)

        def add(self, prompt_index: int, output: RequestOutput) -> None:
            _look(output)
            super().add(prompt_index, output)

    def _look(output: RequestOutput) -> None:
        if any(REPLY_FAULT in completion.token_ids for completion in output.outputs):
            raise _Bug

    completions.CompletionReply = FaultyReply  # type: ignore[misc]


if __name__ == "__main__":
    plant()
    sys.exit(octavo())
