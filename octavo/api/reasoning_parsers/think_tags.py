"""Reasoning between two tags. What differs is what a reply without an opening tag means.

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.definition import Opening, ReasoningFormat

#: a reply begins inside, unless the request or the prompt's end says that there is no thinking
QWEN3 = ReasoningFormat(
    begin=("<think>",),
    end=("</think>",),
    opening=Opening.REASONING,
    ends_at_tools=True,
    drops_stray_ends=True,
)
#: a reply begins inside
DEEPSEEK_R1 = ReasoningFormat(
    begin=("<think>",), end=("</think>",), opening=Opening.REASONING, obeys_request=False
)
#: reasoning begins with its tag
THINK_TAGS = ReasoningFormat(begin=("<think>",), end=("</think>",), ends_at_tools=True)
