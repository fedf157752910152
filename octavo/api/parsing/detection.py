"""Which parsers a model needs, told from its chat template: it shows the model's marks.

Runs in: API process. Owns: the tell-tale texts. Knows nothing of: definitions, requests.
"""

from __future__ import annotations

_BAR, _LOW = "\uff5c", "\u2581"

#: the first row whose texts all stand in the template gives the name; special formats come first
_TOOL_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("deepseek_v3", (f"<{_BAR}tool{_LOW}calls{_LOW}begin{_BAR}>", "```json")),
    ("deepseek_v31", (f"<{_BAR}tool{_LOW}calls{_LOW}begin{_BAR}>",)),
    ("kimi_k2", ("<|tool_calls_section_begin|>",)),
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("seed_oss", ("<seed:tool_call>",)),
    ("longcat", ("<longcat_tool_call>",)),
    ("glm45", ("<arg_key>", "<arg_value>")),
    ("qwen3_coder", ("<function=", "<parameter=")),
    ("openai", ("<|channel|>", "<|message|>", "functions.")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("lfm2", ("<|tool_call_start|>",)),
    ("olmo3", ("<function_calls>",)),
    ("internlm", ("<|action_start|>", "<|plugin|>")),
    ("jamba", ("<tool_calls>",)),
    ("granite", ("<|tool_call|>",)),
    ("hermes", ("<tool_call>", '"name": ', "arguments")),
    ("phi4_mini_json", ("functools[",)),
    ("llama4_pythonic", ("<|python_start|>", "(params_name")),
    ("pythonic", ("[func_name1(params_name1=",)),
    ("llama3_json", ('{"name": function name, "parameters":',)),
    ("llama3_json", ("<|python_tag|>",)),
)
_REASONING_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("openai_gptoss", ("<|channel|>", "<|message|>", "analysis")),
    ("seed_oss", ("<seed:think>",)),
    ("mistral", ("[THINK]",)),
    ("granite", ("Here is my thought process:",)),
    ("qwen3", ("</think>", "enable_thinking")),
)


def told_tool_parser(chat_template: str) -> str | None:
    """The name of the tool parser; None: it cannot be told."""
    return _first(_TOOL_SIGNS, chat_template)


def told_reasoning_parser(chat_template: str) -> str | None:
    """The name of the reasoning parser; None: it cannot be told, or the model does not reason."""
    name = _first(_REASONING_SIGNS, chat_template)
    if name is not None:
        return name
    before, _, generation_prompt = chat_template.rpartition("add_generation_prompt")
    if before and "<think>" in generation_prompt:
        return "deepseek_r1"  # the template opens it
    return "think" if "</think>" in chat_template else None


def _first(signs: tuple[tuple[str, tuple[str, ...]], ...], template: str) -> str | None:
    for name, texts in signs:
        if all(text in template for text in texts):
            return name
    return None
