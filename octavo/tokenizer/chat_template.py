"""`ChatTemplate`: messages to the text a model was trained on.

Same text as transformers' `apply_chat_template`, which vLLM uses; its rules about messages
(`None` fields, names of reasoning fields, continuing the last message) are here too.

Runs in: the API process, or the user's process offline. Owns: compiled templates.
Knows nothing of: tokenizers, requests, tool parsers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ConfigError, InvalidParameter
from octavo.wording import first_line

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]

#: what a message's reasoning may be called; templates read the first, gpt-oss the second
_REASONING_FIELDS: Final = ("reasoning_content", "thinking", "reasoning")
#: several times the longest template of any published model
MAX_TEMPLATE_CHARACTERS: Final = 100_000
_CONTINUE_TAG: Final = "CONTINUE_FINAL_MESSAGE_TAG "


class ChatTemplate:
    """One model's chat template, or its named ones; compiled on first use.

    Args:
        source: the template, or templates by name (`default`, `tool_use`, ...).
        special_tokens: variables every template sees (bos_token, eos_token, ...).
        clock: what `strftime_now` tells.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        special_tokens: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._sources = {"default": source} if isinstance(source, str) else dict(source)
        self._special_tokens = dict(special_tokens or {})
        self._clock = clock
        self._compiled: dict[str, Template] = {}

    def check(self) -> None:
        """Compiles all templates, so that a server finds out at start.

        Raises:
            ConfigError: one has a syntax error.
        """
        for name in self._sources:
            try:
                self._template(name)
            except InvalidParameter as error:
                raise ConfigError(error.message) from None

    def render(
        self,
        messages: Sequence[Message],
        /,  # `self` and `messages` may be names of variables, too
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        null_content: bool = False,
        **kwargs: Any,
    ) -> str:
        """The prompt's text, special tokens spelled out.

        Args:
            messages: plain JSON values; not changed.
            tools: JSON schemas of functions; with a template named `tool_use`, that one is used.
            documents: for templates that quote them.
            add_generation_prompt: end with the header of the answer.
            continue_final_message: end inside the last message instead of closing it.
            null_content: messages with tool calls and no text have the content `none`, which
                some templates ask for; transformers leaves fields of that value out.
            kwargs: more variables; they win over special tokens.

        Raises:
            InvalidParameter: the template refuses the messages (its own words are passed on), or
                the arguments exclude each other.
        """
        if not messages:
            raise InvalidParameter("messages must have at least one message.", param="messages")
        if continue_final_message and add_generation_prompt:
            raise InvalidParameter(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                param="continue_final_message",
            )
        name = self._name_for(tools)
        conversation = [_plain_message(message) for message in messages]
        if null_content:
            for message in conversation:
                if message.get("tool_calls") and not message.get("content"):
                    message["content"] = None
        continued = self._mark_end(conversation, name) if continue_final_message else None
        text = self._render(
            name,
            {
                **self._special_tokens,
                **kwargs,
                "messages": conversation,
                "tools": tools,
                "documents": documents,
                "add_generation_prompt": add_generation_prompt,
            },
        )
        return text if continued is None else _cut_at_mark(text, continued)

    def _name_for(self, tools: Sequence[Mapping[str, Any]] | None) -> str:
        if tools is not None and "tool_use" in self._sources:
            return "tool_use"
        if "default" not in self._sources:
            names = ", ".join(sorted(self._sources))
            raise InvalidParameter(
                f"The model has chat templates named {names} but no default; give one with "
                "--chat-template.",
                param="chat_template",
            )
        return "default"

    def _template(self, name: str) -> Template:
        if name not in self._compiled:
            # late: Jinja takes 70 ms to load, and text completions never need it
            from jinja2 import TemplateSyntaxError

            from octavo.tokenizer.template_budget import Budget, spending
            from octavo.tokenizer.template_environment import chat_environment

            if len(self._sources[name]) > MAX_TEMPLATE_CHARACTERS:  # compiling takes 10 us each
                raise InvalidParameter(
                    f"The chat template has {len(self._sources[name])} characters; at most "
                    f"{MAX_TEMPLATE_CHARACTERS} are compiled.",
                    param="chat_template",
                )
            try:
                with spending(Budget()):  # what is constant is computed now
                    self._compiled[name] = chat_environment(self._clock).from_string(
                        self._sources[name]
                    )
            except (TemplateSyntaxError, RecursionError) as error:
                line = f" in line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
                raise InvalidParameter(
                    f"The chat template has a syntax error{line}: {first_line(error)}.",
                    param="chat_template",
                ) from None
        return self._compiled[name]

    def _render(self, name: str, variables: dict[str, Any]) -> str:
        template = self._template(name)
        from octavo.tokenizer.template_budget import Budget, spending  # late, as above

        try:
            with spending(Budget()):
                return template.render(variables)
        except Exception as error:  # a template may fail in as many ways as any program
            raise InvalidParameter(
                f"The chat template does not take these messages: {first_line(error)}",
                param="messages",
            ) from error

    def _mark_end(self, conversation: list[dict[str, Any]], name: str) -> str:
        """Puts a mark at the end of the last message's text and gives that text."""
        last = conversation[-1]
        content = last.get("content")
        if content is None or "content" not in self._sources[name]:
            raise InvalidParameter(
                "continue_final_message needs a last message with content.", param="messages"
            )
        if isinstance(content, str):
            last["content"] = content + _CONTINUE_TAG
            return content
        parts = [dict(part) if isinstance(part, Mapping) else part for part in content]
        for part in reversed(parts):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                text: str = part["text"]
                part["text"] = text + _CONTINUE_TAG
                last["content"] = parts
                return text
        raise InvalidParameter(
            "continue_final_message needs text in the last message.", param="messages"
        )


def _plain_message(message: Message) -> dict[str, Any]:
    """A copy without `None` fields, with reasoning under the names templates read."""
    plain = {key: value for key, value in message.items() if value is not None}
    for field in _REASONING_FIELDS:
        if field in plain:
            reasoning = plain[field]
            return {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _cut_at_mark(text: str, continued: str) -> str:
    mark = _CONTINUE_TAG.strip()
    if continued.strip() not in text or mark not in text:
        raise InvalidParameter(
            "continue_final_message is not possible: the chat template leaves out or rewrites the "
            "last message.",
            param="continue_final_message",
        )
    cut = text.rindex(mark)
    if text[cut : cut + len(_CONTINUE_TAG)] == _CONTINUE_TAG:
        return text[:cut]
    return text[:cut].rstrip()  # the template trims messages, so the end was trimmed too
