"""NousResearch's Hermes format, also Qwen2.5's and Qwen3's, Granite 4's and many others':

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.call_parts import Envelope
from octavo.api.parsing.definition import ToolFormat

HERMES = ToolFormat(begins=("<tool_call>",), call=(Envelope(),), ends=("</tool_call>",))
LONGCAT = ToolFormat(
    begins=("<longcat_tool_call>",), call=(Envelope(),), ends=("</longcat_tool_call>",)
)
