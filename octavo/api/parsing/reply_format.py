"""`ReplyFormat`: the definitions of a model made ready for its replies.

Runs in: API process. Owns: which mark means what, where. Knows nothing of: requests, texts.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from octavo.api.parsing.call_parts import Fixed
from octavo.api.parsing.definition import Opening, ReasoningFormat, ToolFormat
from octavo.api.parsing.marks import MarkSet


class Action(enum.Enum):
    """What a mark in free text means."""

    CALLS = enum.auto()
    TOOL_END = enum.auto()
    REASONING_BEGIN = enum.auto()
    REASONING_END = enum.auto()
    SILENT = enum.auto()


class Actions:
    """The marks of free text and their meaning."""

    __slots__ = ("action_of", "marks")

    def __init__(self, action_of: Mapping[str, Action]) -> None:
        self.action_of = action_of
        self.marks = MarkSet(action_of)


class ReplyFormat:
    """See the module. Shared by all replies.

    Args:
        tools, reasoning: None: replies are not to be read for them.
        special_tokens: texts of tokens that are no text; not shown unless they are marks.
    """

    def __init__(
        self,
        tools: ToolFormat | None,
        reasoning: ReasoningFormat | None,
        special_tokens: frozenset[str] = frozenset(),
    ) -> None:
        self.tools = tools
        self._reasoning = reasoning
        self._special_tokens = special_tokens - self._marks_of(tools, reasoning)
        self.begin_marks = MarkSet(tools.begins if tools else ())
        self.end_marks = MarkSet(tools.ends if tools else ())
        #: fixed parts that end a call, and where arguments that are no JSON end
        self.call_ends = _call_ends(tools) if tools else []
        self.stops = MarkSet(_stops(tools, self.call_ends) if tools else ())
        self.content = Actions(self._content_actions())
        self.reasoning = Actions(self._reasoning_actions())

    @staticmethod
    def _marks_of(tools: ToolFormat | None, reasoning: ReasoningFormat | None) -> frozenset[str]:
        marks: list[str] = []
        if tools is not None:
            marks += tools.marks
        if reasoning is not None:
            marks += (*reasoning.begin, *reasoning.end)
        return frozenset(marks)

    def _content_actions(self) -> dict[str, Action]:
        actions = dict.fromkeys(self._special_tokens, Action.SILENT)
        tools, reasoning = self.tools, self._reasoning
        if reasoning is not None:
            if reasoning.drops_stray_ends:
                actions |= dict.fromkeys(reasoning.end, Action.SILENT)
            if reasoning.opening is not Opening.REASONING:
                actions |= dict.fromkeys(reasoning.begin, Action.REASONING_BEGIN)
        if tools is not None:
            actions |= dict.fromkeys(tools.ends, Action.TOOL_END)
            actions |= dict.fromkeys((*tools.begins, *tools.bare), Action.CALLS)
        return actions

    def _reasoning_actions(self) -> dict[str, Action]:
        actions = dict.fromkeys(self._special_tokens, Action.SILENT)
        tools, reasoning = self.tools, self._reasoning
        if reasoning is None:
            return actions
        if tools is not None and reasoning.ends_at_tools:
            actions |= dict.fromkeys(tools.begins, Action.CALLS)
        actions |= dict.fromkeys(reasoning.begin, Action.SILENT)
        actions |= dict.fromkeys(reasoning.end, Action.REASONING_END)
        return actions


def _call_ends(tools: ToolFormat) -> list[Fixed]:
    """The fixed parts after the last other one, made optional."""
    ends: list[Fixed] = []
    for part in reversed(tools.call):
        if not isinstance(part, Fixed):
            break
        ends.insert(0, Fixed(*part.marks, optional=True))
    return ends


def _stops(tools: ToolFormat, call_ends: list[Fixed]) -> set[str]:
    marks = {*tools.begins, *tools.ends}
    marks.update(mark for part in call_ends for mark in part.marks)
    return marks
