"""What a reply is made of, and what makes it.

A `ReplyParser` reads the text of one choice as it comes, in any cuts, and gives pieces; pieces of
the same kind that follow one another may be cut anywhere, so that only their sum has a meaning.
The sum does not depend on the cuts of the text.

Runs in: API process. Owns: the names of the pieces. Knows nothing of: wire formats, models, HTTP.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Content(msgspec.Struct, frozen=True):
    """Text for the user."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """Text the model thinks before it answers."""

    text: str


class ToolCallStart(msgspec.Struct, frozen=True):
    """A call begins; its arguments follow before the next call begins.

    Attributes:
        index: 0, 1, ... within the choice.
        name: the whole name of the tool.
        id: the id that the model's own format gives the call; None: the server makes one.
    """

    index: int
    name: str
    id: str | None = None


class ToolCallArguments(msgspec.Struct, frozen=True):
    """The next characters of a call's arguments; together they are one JSON object."""

    index: int
    text: str


Piece = Content | Reasoning | ToolCallStart | ToolCallArguments


def merged(pieces: list[Piece]) -> list[Piece]:
    """The same with neighbours of one kind joined."""
    out: list[Piece] = []
    texts: list[str] = []
    for place, piece in enumerate(pieces):
        if isinstance(piece, ToolCallStart):
            out.append(piece)
            continue
        texts.append(piece.text)
        following = pieces[place + 1] if place + 1 < len(pieces) else None
        if type(following) is not type(piece):
            out.append(msgspec.structs.replace(piece, text="".join(texts)))
            texts = []
    return out


class ReplyParser(Protocol):
    """Parser of one choice; made anew for each.

    Text that turns out not to be what it began like is given as `Content`: nothing is lost, and no
    text makes a parser fail.
    """

    def feed(self, text: str) -> list[Piece]:
        """Takes the next text; gives what is certain by now."""

    def finish(self) -> list[Piece]:
        """The text has ended; gives what was held back. A call that was cut off keeps the
        arguments that came, as they are."""
