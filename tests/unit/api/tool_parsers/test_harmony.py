from __future__ import annotations

import pytest

from octavo.api.parsing.factory import ReplyParsers
from octavo.api.tool_parsers.harmony import HARMONY
from tests.fakes.canned_replies import TOOLS, Said, read

SPECIAL = [
    "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>",
    "<|constrain|>", "<|endoftext|>",
]  # fmt: skip
PROMPT = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
PARSERS = ReplyParsers(HARMONY, HARMONY, SPECIAL)
THOUGHT = "<|channel|>analysis<|message|>I look.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>Hello.<|return|>"


def reading(text: str, prompt: str = PROMPT) -> Said:
    whole = read(PARSERS.make(TOOLS, prompt_tail=prompt), [text])
    assert read(PARSERS.make(TOOLS, prompt_tail=prompt), list(text)) == whole
    return whole


def test_channels_are_reasoning_and_content() -> None:
    assert reading(THOUGHT + FINAL) == Said("Hello.", "I look.", [])


def test_messages_of_one_kind_are_joined_by_a_line_end() -> None:
    preamble = "<|start|>assistant<|channel|>commentary<|message|>Wait.<|end|>"
    again = "<|start|>assistant" + THOUGHT
    assert reading(THOUGHT + again + preamble + FINAL) == Said(
        "Wait.\nHello.", "I look.\nI look.", []
    )


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.now <|constrain|>json",
        " to=functions.now<|channel|>commentary json",
        "<|channel|>analysis to=functions.now code",
    ],
)
def test_a_message_to_a_function_is_a_call(header: str) -> None:
    assert reading(header + "<|message|>{}<|call|>").calls == [("now", "{}")]
    assert reading(f"{THOUGHT}<|start|>assistant{header}<|message|><|call|>") == Said(
        "", "I look.", [("now", "{}")]
    )


def test_a_message_to_a_tool_that_nobody_offered_is_reasoning() -> None:
    said = reading("<|channel|>commentary to=browser.search<|message|>{}<|call|>")
    assert said == Said("", "{}", [])


def test_the_prompt_may_end_in_a_header_or_a_message() -> None:
    said = reading("<|message|>hm<|end|>", PROMPT + "<|channel|>analysis")
    assert said == Said("", "hm", [])
    assert reading("Hel", PROMPT + "<|channel|>final<|message|>") == Said("Hel", "", [])


def test_what_is_no_message_is_content() -> None:
    assert reading("Hello.<|endoftext|>") == Said("Hello.", "", [])
    long_header = "<|channel|>" + "x" * 3000
    assert reading(long_header) == Said(long_header, "", [])
    assert reading("<|channel|>analysis<|end|>ok") == Said("<|channel|>analysisok", "", [])


def test_a_message_without_its_end_is_ended_by_the_next() -> None:
    assert reading("<|channel|>analysis<|message|>hm" + FINAL) == Said("Hello.", "hm", [])
