"""Random conversations, as clients send them and as they should not, for tests of templates."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Conversation = dict[str, Any]  # the arguments of a rendering, `messages` among them

#: text that means something to a template, to a tokenizer, to JSON or to HTML
_MEANINGFUL = [
    "", " ", "\n", "\n\n", "  two  ", "\tx\r\n", "<think>", "</think>",
    "<think>\nhm\n</think>\n\nyes",
    "<tool_call>", "<tool_response>x</tool_response>", "<|im_end|>", "[INST]", "</s>", "<eos>",
    "{{ x }}", "{% if %}", '"quoted" & <b>', "it's", "\\n \\ /", "caf\u00e9", "\u4f60\u597d",
    "\U0001f600", "e\u0301", "\u2028", "\u00a0x\u00a0", "\u3000", "{}", "[]", "null", "CONTINUE",
    "data:", "```json\n{}\n```",
]  # fmt: skip
text = st.one_of(
    st.sampled_from(_MEANINGFUL),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.lists(st.sampled_from(_MEANINGFUL), max_size=3).map("".join),
)
words = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(words, json_values, max_size=3)

_tools = st.builds(
    lambda name, about, parameters, strict: {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": parameters, **strict},
    },
    words,
    text,
    st.dictionaries(words, st.sampled_from(["string", "integer", "boolean"]), max_size=3).map(
        lambda types: {
            "type": "object",
            "properties": {n: {"type": t, "description": f"the {n}"} for n, t in types.items()},
            "required": sorted(types)[:1],
        }
    ),
    st.sampled_from([{}, {"strict": True}]),
)
_calls = st.builds(
    lambda name, given, number: {
        "type": "function",
        "id": f"call{number:05}",  # nine characters, as Mistral's templates insist
        "function": {"name": name, "arguments": given},
    },
    words,
    arguments | arguments.map(repr),
    st.integers(0, 9),
)
_parts = st.lists(text.map(lambda t: {"type": "text", "text": t}), max_size=3)
_reasoning = st.dictionaries(
    st.sampled_from(["reasoning_content", "reasoning", "thinking"]), text | st.none(), max_size=2
)
_variables = st.fixed_dictionaries(
    {},
    optional={
        "enable_thinking": st.booleans(),
        "thinking": st.booleans(),
        "reasoning_effort": st.sampled_from(["low", "high"]),
        "date_string": st.just("26 Jul 2024"),
        "tools_in_user_message": st.booleans(),
        "preserve_thinking": st.booleans(),
        "model_identity": text,
        "xml_tools": st.none(),
        "my_variable": json_values,
        "functions": text,
        "datetime": text,
    },
)
_documents = st.lists(st.fixed_dictionaries({"title": text, "text": text}), min_size=1, max_size=2)


@st.composite
def _turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Roles alternate, tools answer calls: what templates are written for."""
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(text | _parts)})
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(text)})
        calls = draw(st.lists(_calls, max_size=2))
        if calls:
            content = draw(st.none() | text)
            messages.append({"role": "assistant", "content": content, "tool_calls": calls})
            messages += [
                {"role": "tool", "content": draw(text), "tool_call_id": call["id"],
                 "name": call["function"]["name"]}
                for call in calls
            ]  # fmt: skip
        messages.append({"role": "assistant", "content": draw(text), **draw(_reasoning)})
    return messages[: draw(st.integers(1, len(messages)))]


_any_message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer", "critic", ""])},
    optional={
        "content": text | _parts | st.none(),
        "name": words,
        "tool_calls": st.lists(_calls, max_size=2) | st.none(),
        "tool_call_id": st.none() | words,
        "reasoning_content": text | st.none(),
        "reasoning": text,
        "weight": json_values,
    },
)


def conversations() -> st.SearchStrategy[Conversation]:
    """Arguments of `ChatTemplate.render`, messages among them."""
    return st.builds(
        lambda messages, ending, tools, documents, variables: {
            "messages": messages,
            **ending,
            "tools": tools,
            "documents": documents,
            **variables,
        },
        _turns() | _turns() | st.lists(_any_message, min_size=1, max_size=4),
        st.sampled_from(
            [
                {"add_generation_prompt": True},
                {"add_generation_prompt": False},
                {"add_generation_prompt": False, "continue_final_message": True},
            ]
        ),
        st.none() | st.lists(_tools, max_size=2),
        st.none() | st.none() | _documents,
        _variables,
    )
