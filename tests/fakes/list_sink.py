"""A sink that keeps what it is given."""

from __future__ import annotations

from octavo.outputs import RequestOutput


class ListSink:
    def __init__(self) -> None:
        self.outputs: list[RequestOutput] = []
        self.error: BaseException | None = None

    def put(self, output: RequestOutput) -> None:
        assert not (self.outputs and self.outputs[-1].finished), "output after the last one"
        self.outputs.append(output)

    def fail(self, error: BaseException) -> None:
        assert self.error is None
        self.error = error

    def text(self, index: int = 0) -> str:
        """Deltas of one index joined."""
        return "".join(c.text for o in self.outputs for c in o.outputs if c.index == index)

    def token_ids(self, index: int = 0) -> list[int]:
        return [t for o in self.outputs for c in o.outputs if c.index == index for t in c.token_ids]
