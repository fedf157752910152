"""`ReplyParsers`: makes the parser of each choice, for one model.

Made at start from the names that the operator gave or that the chat template tells. Used by: the
assembler's makers. Uses: `names.py`, `engine.py`.
Runs in: API process. Owns: which definitions are in force. Knows nothing of: HTTP, wire formats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from octavo.api.parsing.definition import (
    Opening,
    ParserRequest,
    ReasoningFormat,
    ToolFormat,
    WholeReplyFormat,
)
from octavo.api.parsing.detection import told_reasoning_parser, told_tool_parser
from octavo.api.parsing.engine import MarkedReplyParser
from octavo.api.parsing.forced import JSON_LIST, ForcedCalls, forced_calls
from octavo.api.parsing.marks import MarkSet
from octavo.api.parsing.names import (
    reasoning_parser,
    tool_parser,
)
from octavo.api.parsing.pieces import ReplyParser
from octavo.api.parsing.reply_format import ReplyFormat
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.api.parsing.response_parser import ResponseTemplateFormat
from octavo.sampling_params import ReasoningMarks

AUTO, HF = "auto", "hf"
TOOL_FLAG, REASONING_FLAG = "--tool-call-parser", "--reasoning-parser"
_Definition = TypeVar("_Definition")


class ModelTexts(msgspec.Struct, frozen=True):
    """What a model's files tell of its replies.

    Attributes:
        chat_template: the main one.
        special_tokens: texts of the tokens that are no text.
        response_template: of tokenizer_config.json, as transformers defines it.
    """

    chat_template: str | None = None
    special_tokens: frozenset[str] = frozenset()
    response_template: Mapping[str, Any] | None = None


def reply_parsers(
    *, tool_name: str | None, reasoning_name: str | None, model: ModelTexts
) -> ReplyParsers:
    """The parsers that an operator names.

    Args:
        tool_name, reasoning_name: of `names.py`; `hf`: as the model's response_template says;
            `auto`: as the model's files tell (no reasoning where they tell none); None: replies are
            not read for it.

    Raises:
        ConfigError: a name is unknown, the model's files do not tell, or the two do not go
            together.
    """
    whole: ResponseTemplateFormat | None = None
    if model.response_template is not None and {tool_name, reasoning_name} & {AUTO, HF}:
        # few models have one; it needs the package regex
        from octavo.api.parsing.response_parser import ResponseTemplateFormat as Format

        whole = Format(model.response_template)
    template = model.chat_template or ""
    return ReplyParsers(
        _told(
            tool_name,
            TOOL_FLAG,
            whole=whole if whole is not None and whole.has_tools else None,
            named=tool_parser,
            told=told_tool_parser,
            chat_template=template,
        ),
        _told(
            reasoning_name,
            REASONING_FLAG,
            whole=whole if whole is not None and whole.has_reasoning else None,
            named=reasoning_parser,
            told=told_reasoning_parser,
            chat_template=template,
        ),
        model.special_tokens,
    )


def _told(
    name: str | None,
    flag: str,
    *,
    whole: WholeReplyFormat | None,
    named: Callable[[str], _Definition],
    told: Callable[[str], str | None],
    chat_template: str,
) -> _Definition | WholeReplyFormat | None:
    """The definition of a name; `whole` is what `hf` means, None if it has no such field."""
    if name is None:
        return None
    if name not in (AUTO, HF):
        return named(name)
    if whole is not None:
        return whole
    if name == HF:
        raise ConfigError(
            f"{flag} hf: tokenizer_config.json has no response_template with such a field; name "
            "another parser."
        )
    found = told(chat_template)
    if found is None and flag == TOOL_FLAG:
        raise ConfigError(
            f"{flag} auto: the model's chat template does not tell which parser it needs; name one "
            "(--enable-auto-tool-choice requires --tool-call-parser)."
        )
    return named(found) if found is not None else None


class ReplyParsers:
    """See the module. Safe to share: it does not change.

    Args:
        tools: how the model writes calls; None: calls are not looked for.
        reasoning: how it marks what it thinks; None: reasoning is not told from content.
        special_tokens: texts of the tokens that are no text.

    Raises:
        ConfigError: the two do not go together.
    """

    def __init__(
        self,
        tools: ToolFormat | WholeReplyFormat | None,
        reasoning: ReasoningFormat | WholeReplyFormat | None,
        special_tokens: Collection[str] = (),
    ) -> None:
        self._special_tokens = frozenset(special_tokens)
        self._tools = tools
        self._reasoning = reasoning
        whole = [form for form in (tools, reasoning) if isinstance(form, WholeReplyFormat)]
        self._whole = whole[0] if whole else None
        self._formats: dict[bool, ReplyFormat] = {}
        self._turn_marks = MarkSet(self._special_tokens - self._marks(True))
        if self._whole is None:
            assert not isinstance(tools, WholeReplyFormat)
            assert not isinstance(reasoning, WholeReplyFormat)
            self._formats[True] = ReplyFormat(tools, reasoning, self._silent(True))
            self._formats[False] = ReplyFormat(None, reasoning, self._silent(False))
        elif any(form not in (None, self._whole) for form in (tools, reasoning)):
            raise ConfigError(
                f"The parser {self._whole.name} reads tool calls and reasoning in one; give "
                "--tool-call-parser and --reasoning-parser of the same model, or leave one out."
            )
        self._forced_format = ReplyFormat(
            JSON_LIST,
            reasoning if isinstance(reasoning, ReasoningFormat) else None,
            self._silent(True),
        )

    def keeps_special_tokens(self, has_tools: bool) -> bool:
        """True if a request's text must come with special tokens (`skip_special_tokens` false):
        marks are among them. The parser does not show the others."""
        if self._whole is not None:
            return bool(self._special_tokens)
        marks = self._marks(has_tools)
        return any(token in mark for mark in marks for token in self._special_tokens)

    def make(
        self,
        tools: Mapping[str, Any] | None = None,
        *,
        prompt_tail: str = "",
        thinking: bool | None = None,
        forced: ForcedCalls | None = None,
    ) -> ReplyParser:
        """A parser for one choice.

        Args:
            tools: JSON schemas of the parameters of the request's tools, by name; None or none:
                calls are not looked for.
            prompt_tail: the end of the prompt as the model sees it, special tokens included. It
                tells whether reasoning has begun; more of it than needed does no harm.
            thinking: what the request says of it (`enable_thinking`), None: nothing.
            forced: what `forced` gave for this request, if it demands calls.
        """
        tools = tools or {}
        in_own_format = forced is None or forced.is_own_format
        if self._whole is not None and in_own_format:
            return self._whole.make(
                ParserRequest(
                    tools=tools if self._tools is not None else {},
                    reads_reasoning=self._reasoning is not None,
                    prompt_tail=prompt_tail,
                    special_tokens=self._special_tokens,
                )
            )
        return MarkedReplyParser(
            self._formats[bool(tools)] if in_own_format else self._forced_format,
            in_reasoning=self.begins_in_reasoning(prompt_tail, thinking),
            schemas=tools,
        )

    def forced(
        self,
        tools: Mapping[str, Any],
        *,
        name: str | None = None,
        parallel: bool = True,
        texts: Mapping[str, tuple[str, str]] | None = None,
    ) -> ForcedCalls:
        """What the output of a request that demands calls must look like.

        Args:
            tools: as in `make`, at least one.
            name: the only tool that may be called, once.
            parallel: more than one call may be made.
            texts: tools with one argument, a text: its name and its grammar.
        """
        chosen = tools if name is None else {name: tools[name]}
        spelling = self._tools.spelling if self._tools is not None else None
        return forced_calls(spelling, chosen, parallel=parallel and name is None, texts=texts or {})

    @property
    def reads_tools(self) -> bool:
        """True if calls can be looked for."""
        return self._tools is not None

    @property
    def reads_reasoning(self) -> bool:
        """True if reasoning is told from content."""
        return self._reasoning is not None

    @property
    def ends_reasoning(self) -> bool:
        """True if there is a text that ends reasoning, so that it can be written for the model."""
        return isinstance(self._reasoning, ReasoningFormat)

    @property
    def call_trigger(self) -> str | None:
        """The mark that begins a call; None: there is none, or what follows cannot be demanded."""
        tools = self._tools
        if not isinstance(tools, ToolFormat) or tools.spelling is None:
            return None
        begins = [mark for mark in tools.begins if tools.spelling.before_name.startswith(mark)]
        return max(begins, key=len, default=None)

    def reasoning_marks(
        self, prompt_tail: str, thinking: bool | None = None, *, forced: bool = False
    ) -> ReasoningMarks | None:
        """Where a grammar does not hold in a reply to this prompt; None: it holds everywhere.

        Args:
            prompt_tail, thinking: as in `make`.
            forced: calls are demanded.
        """
        form = self._reasoning
        if self._whole is not None:
            ends = self._whole.call_headers if forced else self._whole.answer_headers
            return ReasoningMarks([], list(ends), is_open=True) if ends else None
        if form is None:
            return None
        assert isinstance(form, ReasoningFormat)
        is_open = self.begins_in_reasoning(prompt_tail, thinking)
        may_begin = is_open or form.opening is not Opening.REASONING
        return ReasoningMarks(list(form.begin), list(form.end), is_open) if may_begin else None

    @property
    def calls_that_end_reasoning(self) -> tuple[str, ...]:
        """Marks of calls that end reasoning without a mark of its own."""
        tools, reasoning = self._tools, self._reasoning
        if isinstance(tools, ToolFormat) and isinstance(reasoning, ReasoningFormat):
            return tools.begins if reasoning.ends_at_tools else ()
        return ()

    def begins_in_reasoning(self, prompt_tail: str, thinking: bool | None = None) -> bool:
        """True if a reply to this prompt begins inside of reasoning. See `make`."""
        form = self._reasoning
        if not isinstance(form, ReasoningFormat):
            return False
        return form.is_open_after(prompt_tail, thinking, self._turn_marks)

    def _marks(self, has_tools: bool) -> set[str]:
        marks: set[str] = set()
        if self._reasoning is not None:
            marks.update(self._reasoning.marks)
        if self._tools is not None and has_tools:
            marks.update(self._tools.marks)
        return marks

    def _silent(self, has_tools: bool) -> frozenset[str]:
        """Special tokens come only if some mark is one."""
        return self._special_tokens if self.keeps_special_tokens(has_tools) else frozenset()
