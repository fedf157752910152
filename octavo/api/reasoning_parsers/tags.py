"""Reasoning between two marks. What differs is what a reply without an opening mark means.

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.definition import Opening, ReasoningFormat


def _always_open(begin: str, end: str, *, obeys_request: bool = True) -> ReasoningFormat:
    return ReasoningFormat(
        begin=(begin,),
        end=(end,),
        opening=Opening.REASONING,
        obeys_request=obeys_request,
        ends_at_tools=True,
        drops_stray_ends=True,
    )


#: a reply begins inside, unless the request or the prompt's end says that there is no thinking
QWEN3 = _always_open("<think>", "</think>")
SEED_OSS = _always_open("<seed:think>", "</seed:think>")
#: a reply begins inside, whatever the request says
ALWAYS_THINK = _always_open("<think>", "</think>", obeys_request=False)
#: a reply begins inside, whatever the request says; only the mark ends it
DEEPSEEK_R1 = ReasoningFormat(
    begin=("<think>",), end=("</think>",), opening=Opening.REASONING, obeys_request=False
)
#: reasoning begins with its mark
THINK_TAGS = ReasoningFormat(begin=("<think>",), end=("</think>",), ends_at_tools=True)
#: as before, but a request that switches thinking on needs no mark
DEEPSEEK_V3 = ReasoningFormat(
    begin=("<think>",), end=("</think>",), opening=Opening.ASKED, ends_at_tools=True
)
MISTRAL = ReasoningFormat(
    begin=("[THINK]", "<think>"),
    end=("[/THINK]", "</think>"),
    ends_at_tools=True,
    drops_stray_ends=True,
)
GRANITE = ReasoningFormat(
    begin=("Here is my thought process:", "Here's my thought process:"),
    end=("Here is my response:", "Here's my response:"),
)
