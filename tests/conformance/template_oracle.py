"""What transformers renders, to compare with `ChatTemplate`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from octavo.errors import InvalidParameter
from octavo.tokenizer.chat_template import ChatTemplate
from tests.fakes.conversations import conversations

SPECIAL_TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
NOW = datetime(2026, 2, 3, 4, 5, 6)
#: what stands for a rendering that is refused
REFUSED = object()


class _FixedClock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return NOW


@pytest.fixture(scope="session", autouse=True)
def fixed_clock() -> Any:
    """`strftime_now` of transformers tells the time of `NOW`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template_utils, "datetime", _FixedClock)
        yield


@functools.cache
def _tokenizer() -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL_TOKENS)


def expected(template: str | dict[str, str], conversation: dict[str, Any]) -> str | object:
    """transformers' text, `REFUSED` when it or the template raises."""
    tokenizer = _tokenizer()
    tokenizer.chat_template = template
    try:
        text: str = tokenizer.apply_chat_template(
            conversation["messages"],
            tokenize=False,
            **{name: value for name, value in conversation.items() if name != "messages"},
        )
    except Exception:  # a template fails in as many ways as any program
        return REFUSED
    return text


def rendered(template: ChatTemplate, conversation: dict[str, Any]) -> str | object:
    """Our text, `REFUSED` when it is refused in the one way that exists."""
    arguments = dict(conversation)
    try:
        return template.render(arguments.pop("messages"), **arguments)
    except InvalidParameter:
        return REFUSED


def chat_template(source: str | dict[str, str]) -> ChatTemplate:
    """Ours, with the same special tokens and clock."""
    return ChatTemplate(source, SPECIAL_TOKENS, clock=lambda: NOW)


def compare_on_random_chats(sources: Mapping[str, str | dict[str, str]]) -> dict[str, int]:
    """Checks every template on the same random conversations; one that either side refuses, both
    must refuse.

    Returns:
        How many conversations each template took, of 150.
    """
    templates = {name: chat_template(source) for name, source in sources.items()}
    num_taken = dict.fromkeys(sources, 0)

    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(conversations())
    def compare(conversation: dict[str, Any]) -> None:
        for name, source in sources.items():
            text = rendered(templates[name], conversation)
            assert text == expected(source, conversation), name
            num_taken[name] += text is not REFUSED

    compare()
    return num_taken
