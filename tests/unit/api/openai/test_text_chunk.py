from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from octavo.api.openai.protocol import CompletionChoice, CompletionChunk
from octavo.api.openai.text_chunk import TextChunk
from octavo.api.sse import frame


def event(text: str, name: str = "cmpl-1") -> CompletionChunk:
    choice = CompletionChoice(index=0, text=text)
    return CompletionChunk(id=name, created=7, model="m", choices=[choice])


@given(st.text(), st.text())
def test_the_event_is_what_encoding_the_whole_struct_gives(text: str, name: str) -> None:
    chunk = TextChunk(lambda text: event(text, name))
    assert bytes(chunk.encode(text)) == msgspec.json.encode(event(text, name))


def test_it_can_be_framed_with_others() -> None:
    events = [event("a"), TextChunk(event).encode("b\n")]
    assert frame(events) == frame([event("a"), event("b\n")])
