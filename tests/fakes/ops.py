"""An op set that computes nothing: it remembers which operations were called.

Knows nothing of: numbers.
"""

from __future__ import annotations

from collections.abc import Callable


class FakeOps:
    """Every op is there; `called` lists their names in order."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def constant(self, values: object) -> str:
        return "constant"

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name.startswith("_"):
            raise AttributeError(name)

        def op(*args: object, **kwargs: object) -> str:
            self.called.append(name)
            return name

        return op


class FakeWeights:
    """Has every weight; `asked` maps the names that were asked for to their shapes."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[int, ...]] = {}

    def linear(self, name: str, n: int, k: int) -> str:
        self.asked[name] = (n, k)
        return name

    def vector(self, name: str, n: int) -> str:
        self.asked[name] = (n,)
        return name

    def optional_vector(self, name: str, n: int) -> str:
        return self.vector(name, n)

    def has(self, name: str) -> bool:
        return True
