"""How the reply to a chat is read, and what it must be: parsers, tools and grammars as one plan.

    request -> `plan` -> what the template sees of the tools
                      -> sampling parameters: a grammar of calls, where it holds, special tokens
                      -> `Parsing` of each choice

Neighbours: `octavo/api/openai/chat.py` (caller), `octavo/api/openai/tools.py` (checks),
`octavo/api/parsing` (parsers), `octavo/structured_output` (grammars).
Runs in: API process, event loop. Owns: what tools, reasoning and formats mean together.
Knows nothing of: templates, HTTP.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.api.assembler import Parsing
from octavo.api.openai.custom_tools import INPUT
from octavo.api.openai.protocol import ChatCompletionRequest
from octavo.api.openai.structured_output import FIELD, structured_outputs
from octavo.api.openai.thinking_budget import checked_budget, keep_budget, refuse_budget
from octavo.api.openai.tools import (
    AllowedChoice,
    Choice,
    NamedChoice,
    Tool,
    checked_choice,
    checked_tools,
)
from octavo.api.reasoning_tokens import ReasoningTokens, TokenNames
from octavo.errors import InvalidParameter, UnsupportedFeature
from octavo.sampling_params import (
    BeamSearchParams,
    SamplingParams,
    StructuredOutputsParams,
)
from octavo.wording import printable

if TYPE_CHECKING:  # parsers are imported only where there are some
    from octavo.api.parsing.factory import ReplyParsers
    from octavo.api.parsing.forced import ForcedCalls

#: what a parser needs of a prompt to see whether reasoning has begun
_TAIL_CHARACTERS = 4096
#: how templates call the switch for thinking
_THINKING = ("enable_thinking", "thinking")


class ReadingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator has set.

    Attributes:
        parsers: None: replies are content.
        is_auto_choice_enabled: the model may choose to call tools.
        strict_level: auto, function (the form of calls is always kept) or parameter (their
            arguments, too).
        excludes_unused_tools: tools that must not be called are no part of the prompt.
        constrains_reasoning: grammars hold for reasoning, too.
        template_kwargs: for templates; those of a request win.
        tokens: what tokens say, for counting those of reasoning; None: they are not counted.
        observe: takes (streamed, called a tool) of each choice that was read for calls.
    """

    parsers: ReplyParsers | None = None
    is_auto_choice_enabled: bool = False
    strict_level: str = "auto"
    excludes_unused_tools: bool = False
    constrains_reasoning: bool = False
    template_kwargs: Mapping[str, object] = {}
    tokens: TokenNames | None = None
    observe: Callable[[bool, bool], None] | None = None


class ReplyReading:
    """Plans for the requests of a server."""

    def __init__(self, settings: ReadingSettings) -> None:
        self._settings = settings

    @property
    def reads_reasoning(self) -> bool:
        """True if reasoning is told from content."""
        parsers = self._settings.parsers
        return parsers is not None and parsers.reads_reasoning

    def plan(self, request: ChatCompletionRequest) -> ReadingPlan:
        """What is done with the tools and the reply of a request.

        Raises:
            InvalidParameter, UnsupportedFeature: of tools or tool_choice.
        """
        tools = checked_tools(request.tools)
        choice = checked_choice(request.tool_choice, tools)
        self._check_available(choice)
        self._check_budget(request.thinking_token_budget)
        return ReadingPlan(self._settings, request, tools, choice)

    def _check_available(self, choice: Choice) -> None:
        settings = self._settings
        has_parser = settings.parsers is not None and settings.parsers.reads_tools
        if choice == "none":
            return
        if _is_auto(choice):
            if not (has_parser and settings.is_auto_choice_enabled):
                raise UnsupportedFeature(
                    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser '
                    "to be set; start the server with them, set tool_choice to none, or remove "
                    "tools. (parameter=tools)",
                    param="tools",
                )
            return
        if not has_parser:
            name = choice.name if isinstance(choice, NamedChoice) else "required"
            raise UnsupportedFeature(
                f'tool_choice="{printable(name, 60)}" requires --tool-call-parser to be set. '
                "(parameter=tool_choice)",
                param="tool_choice",
            )

    def _check_budget(self, budget: int | None) -> None:
        parsers = self._settings.parsers
        if parsers is None or not parsers.reads_reasoning:
            refuse_budget(budget, "requires --reasoning-parser to be set")
        elif not parsers.ends_reasoning:
            refuse_budget(budget, "is not supported with this model's reasoning parser")


class ReadingPlan:
    """One request. See `ReplyReading.plan`."""

    def __init__(
        self,
        settings: ReadingSettings,
        request: ChatCompletionRequest,
        tools: Sequence[Tool],
        choice: Choice,
    ) -> None:
        self._settings = settings
        self._request = request
        self._choice = choice
        self._called = _called(choice, tools)
        self._forced: ForcedCalls | None = None
        self._is_restricted = len(self._called) < len(tools) and choice != "none"

    @property
    def shown_tools(self) -> list[dict[str, Any]] | None:
        """The tools that are part of the prompt. Those that may not be called are, too, so that the
        prompts of a conversation begin alike; unless nothing can keep the model from calling them,
        or the operator does not want it."""
        tools, choice = self._request.tools, self._choice
        if not tools or (choice == "none" and self._settings.excludes_unused_tools):
            return None
        parsers = self._settings.parsers
        if self._is_restricted and _is_auto(choice) and parsers and parsers.call_trigger is None:
            fields = {tool.field.partition(".")[0] for tool in self._called}
            return [tool for index, tool in enumerate(tools) if f"tools[{index}]" in fields]
        return tools

    @property
    def is_parsed(self) -> bool:
        """False if all of the reply is content."""
        parsers = self._settings.parsers
        return parsers is not None and (parsers.reads_reasoning or bool(self._called))

    @property
    def template_variables(self) -> dict[str, Any]:
        """Variables for the template besides those the request names."""
        effort = self._request.reasoning_effort
        if effort is None:
            return {}
        # templates that know only of the switch
        return {"reasoning_effort": effort, "enable_thinking": effort != "none"}

    @property
    def _thinking(self) -> bool | None:
        """What the request says of thinking, None if nothing."""
        variables = {
            **self._settings.template_kwargs,
            **self.template_variables,
            **(self._request.chat_template_kwargs or {}),
        }
        for name in _THINKING:
            if isinstance(variables.get(name), bool):
                return bool(variables[name])
        return None

    def constrain(
        self, params: SamplingParams | BeamSearchParams, prompt_text: str
    ) -> SamplingParams | BeamSearchParams:
        """The parameters with what tools and reasoning add.

        Raises:
            InvalidParameter: what is asked for does not go together.
        """
        parsers = self._settings.parsers
        if parsers is None or not self.is_parsed:
            return params
        if parsers.keeps_special_tokens(bool(self._called)):
            params.skip_special_tokens = False
        constraint = self._constraint()
        budget = checked_budget(self._request.thinking_token_budget)
        if isinstance(params, BeamSearchParams):
            refuse_budget(budget, "is not supported with beam search")
            if constraint is not None:
                raise InvalidParameter(
                    "`tool_choice` and strict tools are not supported with beam search. "
                    "(parameter=tool_choice)",
                    param="tool_choice",
                )
            return params
        if constraint is not None:
            params.structured_outputs = constraint
        has_grammar = params.structured_outputs is not None
        if has_grammar and self._settings.constrains_reasoning:
            refuse_budget(budget, "is not supported where a grammar holds for the reasoning, too")
        elif has_grammar or budget is not None:
            marks = parsers.reasoning_marks(
                prompt_text[-_TAIL_CHARACTERS:],
                self._thinking,
                forced=self._choice != "none" and not _is_auto(self._choice),
            )
            params.reasoning = marks
            if budget is not None and marks is not None:
                ends = parsers.calls_that_end_reasoning if self._called else ()
                keep_budget(params, budget, marks, ends, self._settings.tokens)
        return params

    def parsing(self, prompt_text: str) -> Callable[[], Parsing] | None:
        """Makes the parsing of a choice; None: all of it is content.

        Args:
            prompt_text: the rendered prompt.
        """
        if not self.is_parsed:
            return None
        parsers, tail = self._settings.parsers, prompt_text[-_TAIL_CHARACTERS:]
        assert parsers is not None
        tools = {tool.name: tool.parameters for tool in self._called}
        texts = {tool.name: INPUT for tool in self._called if tool.is_custom}
        is_named = isinstance(self._choice, NamedChoice)
        has_one_call = is_named or self._request.parallel_tool_calls is False
        thinking, forced, tokens = self._thinking, self._forced, self._settings.tokens
        marks = parsers.reasoning_marks(tail, thinking) if tokens is not None else None
        observe = self._settings.observe if self._called else None
        on_end = None if observe is None else partial(observe, self._request.stream)

        def make() -> Parsing:
            return Parsing(
                parser=parsers.make(tools, prompt_tail=tail, thinking=thinking, forced=forced),
                make_id=_new_id,
                text_tools=texts,
                max_tool_calls=1 if has_one_call else None,
                tool_finish_reason="stop" if is_named else "tool_calls",
                reasoning_tokens=(
                    None if marks is None or tokens is None else ReasoningTokens(tokens, marks)
                ),
                on_end=on_end,
            )

        return make

    def _constraint(self) -> StructuredOutputsParams | None:
        """The grammar that calls need; None: what the request asks for stays."""
        choice = self._choice
        if choice == "none":
            return None
        if _is_auto(choice):
            return self._auto_constraint()
        if self._request.structured_outputs is not None:
            raise InvalidParameter(
                "You can only either use constraints for structured outputs or tools, not both. "
                "(parameter=structured_outputs)",
                param="structured_outputs",
            )
        name = choice.name if isinstance(choice, NamedChoice) else None
        tools = [tool for tool in self._called if name is None or tool.name == name]
        keeps_all = self._settings.strict_level == "parameter"
        self._forced = self._forced_calls(
            tools, keeps=lambda tool: keeps_all or tool.strict is not False
        )
        return StructuredOutputsParams(
            structural_tag=self._forced.structural_tag,
            origin="tools",
            schema_origins=[tool.field for tool in tools],
        )

    def _auto_constraint(self) -> StructuredOutputsParams | None:
        """Calls and text as the model likes: calls are kept in form if a tool or the operator is
        strict, and an answer with a format is that or calls."""
        settings, parsers = self._settings, self._settings.parsers
        assert parsers is not None
        tools, level = self._called, settings.strict_level

        def keeps(tool: Tool) -> bool:
            return level == "parameter" or tool.strict is True

        asked = structured_outputs(self._request)
        trigger = parsers.call_trigger
        if asked is None:
            is_kept = level != "auto" or self._is_restricted or any(map(keeps, tools))
            if trigger is None or not is_kept:
                self._check_texts_are_free()
                return None
            tags = self._forced_calls(tools, keeps=keeps).structural_tag["format"]["tags"]
            form: dict[str, Any] = {
                "type": "triggered_tags",
                "triggers": [trigger],
                "tags": tags,
            }
            origins = [tool.field for tool in tools]
        else:
            schema = _schema_of(asked)
            calls = self._forced_calls(tools, keeps=keeps)
            if schema is None or not calls.is_own_format:
                self._check_texts_are_free()
                return None  # the format alone: the model does without calls
            answer = {"type": "json_schema", "json_schema": schema}
            form = {"type": "or", "elements": [calls.structural_tag["format"], answer]}
            origins = [*(tool.field for tool in tools), asked.origin]
        return StructuredOutputsParams(
            structural_tag={"format": form}, origin="tools", schema_origins=origins
        )

    def _check_texts_are_free(self) -> None:
        """Calls will not be held to anything: no tool may ask for it in vain."""
        for tool in self._called:
            if tool.grammar is not None:
                raise UnsupportedFeature(
                    f"{tool.field}: with this --tool-call-parser or response_format, calls that "
                    "the model chooses to make cannot be held to a grammar; demand the tool with "
                    f"tool_choice, or use the format text. (parameter={tool.field})",
                    param=tool.field,
                )

    def _forced_calls(self, tools: Sequence[Tool], *, keeps: Callable[[Tool], bool]) -> ForcedCalls:
        """One call and more. Arguments of tools that are not kept are any object."""
        assert self._settings.parsers is not None
        schemas = {
            tool.name: tool.parameters if keeps(tool) else {"type": "object"} for tool in tools
        }
        is_named = isinstance(self._choice, NamedChoice)
        parallel = self._request.parallel_tool_calls is not False and not is_named
        texts = {tool.name: (INPUT, tool.grammar) for tool in tools if tool.grammar is not None}
        return self._settings.parsers.forced(schemas, parallel=parallel, texts=texts)


def _is_auto(choice: Choice) -> bool:
    """True if the model may do without a call."""
    return choice == "auto" or (isinstance(choice, AllowedChoice) and not choice.is_required)


def _called(choice: Choice, tools: Sequence[Tool]) -> list[Tool]:
    """The tools that may be called."""
    if choice == "none":
        return []
    if isinstance(choice, AllowedChoice):
        return [tool for tool in tools if tool.name in choice.names]
    return list(tools)


def _schema_of(asked: StructuredOutputsParams) -> Any:
    """The JSON schema of a format; None for what is none."""
    if asked.json_object:
        return {"type": "object"}
    return asked.json if asked.origin.startswith(FIELD) else None


def _new_id() -> str:
    return f"chatcmpl-tool-{secrets.token_hex(8)}"
