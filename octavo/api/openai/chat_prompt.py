"""From chat messages to the text of the prompt.

Neighbours: `octavo/api/openai/messages.py` (checks), `octavo/tokenizer/chat_template.py` (renders).
Runs in: API process. Owns: which template and which variables a request gets.
Knows nothing of: HTTP, the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from octavo.api.openai.custom_tools import as_function
from octavo.api.openai.messages import prepare_messages
from octavo.api.openai.tool_history import ToolCallForm, tool_call_form
from octavo.errors import InvalidParameter, PromptTooLong, RequestError

NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a "
    "chat template if the tokenizer does not define one. (Start the server with --chat-template.)"
)

#: variables of a template that a request sets with fields of their own
_RESERVED = frozenset(
    {
        "messages",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "null_content",
        "chat_template",
        "tokenize",
    }
)


class Template(Protocol):
    """What rendering needs (`octavo/tokenizer/chat_template.py`)."""

    def render(
        self,
        messages: list[dict[str, Any]],
        /,
        *,
        tools: list[dict[str, Any]] | None = None,
        documents: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str: ...


class ChatFields(Protocol):
    """What of a request renders messages into a prompt: chats and `POST /tokenize` have it."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    documents: list[dict[str, Any]] | None
    add_generation_prompt: bool
    continue_final_message: bool
    add_special_tokens: bool
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None


class ChatPrompt:
    """Renders messages.

    Args:
        template: the model's, or that of `--chat-template`; None if there is none.
        make_template: compiles a template that came with a request.
        content_format: `string`, `openai`, or `auto` (what the template copes with).
        trust_request_template: `--trust-request-chat-template`.
        default_kwargs: `--default-chat-template-kwargs`; those of a request win.
        max_pieces: gives the most messages, parts, tool calls, tools and documents a request may
            have together, the window in tokens: rendering a million takes seconds, and they could
            not fit. None: any number.
    """

    def __init__(
        self,
        template: Template | None,
        *,
        make_template: Callable[[str], Template],
        content_format: str,
        trust_request_template: bool,
        default_kwargs: Mapping[str, object],
        max_pieces: Callable[[], int] | None = None,
    ) -> None:
        self._template = template
        self._make_template = make_template
        self._content_format = content_format
        self._trust_request_template = trust_request_template
        self._default_kwargs = dict(default_kwargs)
        self._max_pieces = max_pieces
        # of the server's template, found at first use
        self._keeps_parts: bool | None = None
        self._form: ToolCallForm | None = None

    def render(self, request: ChatFields, **variables: Any) -> str:
        """The prompt's text.

        Args:
            request: the messages and options.
            variables: more variables for the template; those of the request win.

        Raises:
            RequestError: bad messages, no template, or the template refused (in its own words).
        """
        if request.continue_final_message and request.add_generation_prompt:
            raise InvalidParameter(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                param="continue_final_message",
            )
        self._check_size(request)
        template = self._template_for(request)
        kwargs = {
            **self._default_kwargs,
            **variables,
            **{k: v for k, v in (request.chat_template_kwargs or {}).items() if k not in _RESERVED},
        }
        has_parts = any(isinstance(m.get("content"), list) for m in request.messages)
        messages = prepare_messages(
            request.messages, keep_parts=has_parts and self._keep_parts(template)
        )
        if any("tool_calls" in message for message in messages):
            form = self._tool_call_form(template)
            messages = form.apply(messages)
            if form.needs_null:
                kwargs["null_content"] = True
        return template.render(
            messages,
            tools=[as_function(tool) for tool in request.tools or ()] or None,
            documents=request.documents or None,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            **kwargs,
        )

    def _check_size(self, request: ChatFields) -> None:
        if self._max_pieces is None:
            return
        num_pieces = len(request.tools or ()) + len(request.documents or ())
        for message in request.messages:
            lists = (message.get("content"), message.get("tool_calls"))
            num_pieces += 1 + sum(len(part) for part in lists if isinstance(part, list))
        limit = self._max_pieces()
        if num_pieces > limit:
            raise PromptTooLong(
                f"The request has {num_pieces} messages, parts, tool calls, tools and documents, "
                f"and the model's maximum context length is {limit} tokens. Please reduce the "
                "length of the input prompt. (parameter=messages)",
                param="messages",
            )

    def _template_for(self, request: ChatFields) -> Template:
        if request.chat_template is not None:
            if not self._trust_request_template:
                raise InvalidParameter(
                    "Chat template is passed with request, but --trust-request-chat-template is "
                    "not set. Refused request with untrusted chat template.",
                    param="chat_template",
                )
            return self._make_template(request.chat_template)
        if self._template is None:
            raise InvalidParameter(NO_TEMPLATE, param="messages")
        return self._template

    def _tool_call_form(self, template: Template) -> ToolCallForm:
        if template is not self._template:
            return tool_call_form(template.render)
        if self._form is None:
            self._form = tool_call_form(template.render)
        return self._form

    def _keep_parts(self, template: Template) -> bool:
        if self._content_format != "auto":
            return self._content_format == "openai"
        if template is not self._template:
            return copes_with_parts(template)
        if self._keeps_parts is None:
            self._keeps_parts = copes_with_parts(template)
        return self._keeps_parts


def copes_with_parts(template: Template) -> bool:
    """True if the template reads content as a list of parts: rendered with one, it must show the
    text and not the list."""
    probe = [{"role": "user", "content": [{"type": "text", "text": "probe"}]}]
    try:
        text = template.render(probe)
    except RequestError:
        return False
    return "probe" in text and "'text'" not in text and '"text"' not in text
