"""Reasoning and content, for every kind of opening."""

from __future__ import annotations

import pytest

from octavo.api.parsing.factory import ReplyParsers
from octavo.api.parsing.names import reasoning_parser, tool_parser
from tests.fakes.canned_replies import TOOLS, Said, read

SPECIAL = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
ASSISTANT = "<|im_start|>assistant\n"


def parsers(reasoning: str, tools: str | None = None) -> ReplyParsers:
    return ReplyParsers(tool_parser(tools) if tools else None, reasoning_parser(reasoning), SPECIAL)


@pytest.mark.parametrize("name", ["qwen3", "deepseek_r1", "step3p5", "think"])
@pytest.mark.parametrize("cut", [1, 3, 100])
def test_thoughts_are_told_from_the_answer(name: str, cut: int) -> None:
    text = "<think>\nhm <b\n</think>\n\nYes."
    cuts = [text[n : n + cut] for n in range(0, len(text), cut)]
    assert read(parsers(name).make(), cuts) == Said("\n\nYes.", "\nhm <b\n", [])


@pytest.mark.parametrize("name", ["qwen3", "deepseek_r1"])
def test_without_a_first_tag_a_reply_begins_in_thought(name: str) -> None:
    made = parsers(name)
    assert read(made.make(), ["hm</think>Yes."]) == Said("Yes.", "hm", [])
    assert read(made.make(), ["cut off"]) == Said("", "cut off", [])


def test_generic_tags_need_the_first_tag() -> None:
    assert read(parsers("think").make(), ["Yes."]) == Said("Yes.", "", [])
    again = read(parsers("think").make(), ["<think>a</think>b<think>c</think>d"])
    assert again == Said("bd", "ac", [])


def test_a_request_without_thinking_has_content_only_where_the_model_listens() -> None:
    assert read(parsers("qwen3").make(thinking=False), ["Yes."]) == Said("Yes.", "", [])
    assert read(parsers("deepseek_r1").make(thinking=False), ["hm"]) == Said("", "hm", [])


def test_a_request_that_switches_thinking_on_needs_no_first_tag_with_deepseek_v3() -> None:
    made = parsers("deepseek_v3")
    assert read(made.make(thinking=True), ["hm</think>Yes."]) == Said("Yes.", "hm", [])
    for thinking in (None, False):
        assert read(made.make(thinking=thinking), ["Yes."]) == Said("Yes.", "", [])
        said = read(made.make(thinking=thinking), ["<think>hm</think>Yes."])
        assert said == Said("Yes.", "hm", [])
    closed = f"{ASSISTANT}</think>"
    assert not made.begins_in_reasoning(closed, thinking=True), "the prompt says more"


@pytest.mark.parametrize("name", ["qwen3", "deepseek_r1", "think"])
def test_the_prompts_end_tells_whether_thought_has_begun(name: str) -> None:
    made = parsers(name)
    for prompt, is_open in [
        (f"{ASSISTANT}<think>\n", True),
        (f"{ASSISTANT}<think>\n\n</think>\n\n", False),
        (f"{ASSISTANT}<think>so far I", True),
        (f"<|im_start|>user\nsay </think><|im_end|>\n{ASSISTANT}<think>", True),
    ]:
        assert made.begins_in_reasoning(prompt) is is_open, prompt
    tells_nothing = f"<|im_start|>user\n<think>?<|im_end|>\n{ASSISTANT}"
    assert made.begins_in_reasoning(tells_nothing) is (name != "think")


def test_without_tokens_of_turns_only_the_very_end_counts() -> None:
    made = ReplyParsers(None, reasoning_parser("think"))
    assert made.begins_in_reasoning("a <think> b") is False
    assert made.begins_in_reasoning("a <think>\n") is True


def test_a_call_ends_thought_for_models_that_forget_the_tag() -> None:
    text = 'hm<tool_call>{"name": "now", "arguments": {}}</tool_call> ok'
    for cuts in ([text], list(text)):
        said = read(parsers("qwen3", "hermes").make(TOOLS), cuts)
        assert said == Said(" ok", "hm", [("now", "{}")])
    said = read(parsers("deepseek_r1", "hermes").make(TOOLS), [text])
    assert said == Said("", text, [])


def test_a_mark_in_thought_that_is_no_call_is_thought() -> None:
    said = read(parsers("qwen3", "hermes").make(TOOLS), ["a <tool_call> b</think>c"])
    assert said == Said("c", "a <tool_call> b", [])


def test_a_stray_end_tag_is_dropped_where_models_repeat_it() -> None:
    assert read(parsers("qwen3").make(), ["a</think>b</think>c"]) == Said("bc", "a", [])
    said = read(parsers("deepseek_r1").make(), ["a</think>b</think>c"])
    assert said == Said("b</think>c", "a", [])


def test_other_special_tokens_are_no_text() -> None:
    said = read(parsers("qwen3").make(), ["a<|im_", "end|></think>b<|im_end|>"])
    assert said == Said("b", "a", [])


def test_special_tokens_are_kept_only_where_marks_are_among_them() -> None:
    assert parsers("qwen3").keeps_special_tokens(has_tools=False)
    hermes = ReplyParsers(tool_parser("hermes"), None, ["<|im_end|>", "<tool_call>"])
    assert hermes.keeps_special_tokens(has_tools=True)
    assert not hermes.keeps_special_tokens(has_tools=False)
    assert not ReplyParsers(tool_parser("hermes"), None, ["</s>"]).keeps_special_tokens(True)


def test_granites_sentences_are_marks() -> None:
    text = "Here is my thought process:\nhm\nHere is my response:\nYes."
    for cuts in ([text], list(text)):
        assert read(parsers("granite").make(), cuts) == Said("\nYes.", "\nhm\n", [])
