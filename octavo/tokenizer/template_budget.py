"""What one rendering of a chat template may cost: steps, characters, seconds.

A template is a program, and requests may bring their own (`--trust-request-chat-template`). Loop
passes and macro calls are steps; text that is joined, repeated, padded or formatted is characters,
counted before it is made; so are lists. The clock is looked at every few steps, so that what is
slow without being large ends, too.

Runs in: the API process. Owns: the limits. Knows nothing of: Jinja, messages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

MAX_STEPS: Final = 1_000_000
MAX_CHARACTERS: Final = 200_000_000  # a window of a million tokens is five million
MAX_SECONDS: Final = 2.0  # of the processor: whoever else is on the machine does not count
_STEPS_PER_LOOK: Final = 16  # at the clock
_VALUES_PER_LOOK: Final = 4096
BYTES_PER_ITEM: Final = 8  # what an item of a list counts
MAX_WIDTH: Final = 200  # to pad or indent to, possibly in many lines
MAX_INTEGER_BITS: Final = 10_000

#: a width written in a format, or one that an argument gives
_WRITTEN_WIDTH: Final = re.compile(r"\{[^{}]*:[^{}]*\d{4}|%(?:\([^)]*\))?[-+ #0]*[\d.]*\d{4}")
_GIVEN_WIDTH: Final = re.compile(r"\{[^{}]*:[^{}]*\{|%(?:\([^)]*\))?[-+ #0]*[\d.]*\*")


class BudgetExceeded(Exception):
    """The template costs too much; the message says what."""


class Budget:
    """What is left."""

    def __init__(
        self,
        *,
        num_steps: int = MAX_STEPS,
        num_characters: int = MAX_CHARACTERS,
        seconds: float = MAX_SECONDS,
    ) -> None:
        self._limits = num_steps, num_characters, seconds
        self._num_steps = num_steps
        self._num_characters = num_characters
        self._deadline = time.thread_time() + seconds

    def step(self) -> None:
        """A pass of a loop, a call of a macro."""
        self._num_steps -= 1
        if self._num_steps < 0:
            raise BudgetExceeded(f"it takes more than {self._limits[0]} steps")
        if self._num_steps % _STEPS_PER_LOOK == 0:
            self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        if time.thread_time() > self._deadline:
            raise BudgetExceeded(f"it takes longer than {self._limits[2]:g} s")

    def take(self, num_characters: int) -> None:
        """Text or lists of that size are about to be made."""
        self._num_characters -= num_characters
        if self._num_characters < 0:
            raise BudgetExceeded(f"it builds more than {self._limits[1]} characters")

    def take_copy(self, value: Any) -> None:
        """A text or a list has been made; what a list holds is not new."""
        if isinstance(value, str | list | tuple):
            self.take(_size(value))

    def weigh(self, value: Any) -> None:
        """A value is about to be written out: it counts as the tree that is written, though parts
        of it may be one object in memory."""
        if isinstance(value, str):
            self.take(len(value))
            return
        todo = [value]
        num_looked_at = 0
        while todo:
            num_looked_at += 1
            if num_looked_at % _VALUES_PER_LOOK == 0:
                self._look_at_the_clock()
            value = todo.pop()
            if isinstance(value, str):
                self.take(len(value))
            elif isinstance(value, Mapping):
                self.take(len(value))
                todo.extend(value.keys())
                todo.extend(value.values())
            elif isinstance(value, list | tuple):
                self.take(len(value))
                todo.extend(value)
            elif isinstance(value, int):
                self.take(1 + value.bit_length() // 3)

    def multiply(self, left: Any, right: Any) -> None:
        """`left * right` is about to be computed."""
        for value, count in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(count, int):
                self.take(_size(value) * max(count, 0))
                for _ in range(count if isinstance(value, list | tuple) else 0):
                    self.weigh(value)
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())

    def power(self, base: Any, exponent: Any) -> None:
        """`base ** exponent` is about to be computed."""
        if isinstance(base, int) and isinstance(exponent, int):
            _check_bits(base.bit_length() * abs(exponent))

    def add(self, left: Any, right: Any) -> None:
        """`left + right` is about to be computed."""
        if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            self.weigh(left)
            self.weigh(right)

    def format(self, template: Any, arguments: Any) -> None:
        """`template % arguments` or `template.format(...)` is about to be computed."""
        if not isinstance(template, str):
            return
        self.weigh(template)
        self.weigh(arguments)
        if _WRITTEN_WIDTH.search(template) or (
            _GIVEN_WIDTH.search(template) and any(_is_wide(value) for value in _leaves(arguments))
        ):
            raise BudgetExceeded(f"it pads to more than {MAX_WIDTH} characters")

    def pad(self, *widths: Any) -> None:
        """Something is about to be padded or indented."""
        if any(_is_wide(width) for width in widths):
            raise BudgetExceeded(f"it pads to more than {MAX_WIDTH} characters")

    def replace(self, text: str, old: Any, new: Any) -> None:
        """`text.replace(old, new)` is about to be computed."""
        if isinstance(old, str) and isinstance(new, str):
            self.take(len(text) + text.count(old) * len(new))

    def join(self, separator: Any, values: Any) -> None:
        """`separator.join(values)` is about to be computed."""
        self.weigh(values)
        if isinstance(values, list | tuple | str | Mapping):
            self.take(len(str(separator)) * len(values))


_current: ContextVar[Budget | None] = ContextVar("_current", default=None)


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Around the compiling or rendering of one template."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


def current_budget() -> Budget:
    """That of the rendering in progress."""
    budget = _current.get()
    assert budget is not None, "a template is used outside of `spending`"
    return budget


def _size(value: str | Sequence[Any]) -> int:
    return len(value) if isinstance(value, str) else len(value) * BYTES_PER_ITEM


def _check_bits(num_bits: int) -> None:
    if num_bits > MAX_INTEGER_BITS:
        raise BudgetExceeded("its numbers are too large")


def _is_wide(value: Any) -> bool:
    return (isinstance(value, int) and value > MAX_WIDTH) or (
        isinstance(value, str) and len(value) > MAX_WIDTH
    )


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
