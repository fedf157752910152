"""What JSON would cost to parse, by a look at its bytes.

Parsing cannot be interrupted and the event loop waits for it, so a body of millions of tiny values
would stop every stream for many seconds and take gigabytes. Commas and colons bound the number of
values; those inside of text count, too, which no real text comes near.

Runs in: API process, event loop. Owns: the limits. Knows nothing of: requests.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from octavo.errors import BodyTooLarge

MAX_VALUES: Final = 1_000_000
MAX_KEYS: Final = 300_000  # a bias for every token of the largest vocabularies
#: numbers that the parser is slow at, by what they look like, and the most of them: from 1e280 on
#: each takes 40 us, of thousands of digits 300 us
SLOW_NUMBERS: Final = (
    (re.compile(rb"[eE](?<=[0-9][eE])\+?0*(?:2[89]|3)[0-9]"), 10_000),
    (re.compile(rb"(?<![0-9])[0-9]{1000}"), 1_000),
)


def check_json_cost(text: bytes) -> None:
    """Looks at a JSON text before it is parsed.

    Raises:
        BodyTooLarge: it has too many values, keys or slow numbers.
    """
    num_commas = text.count(b",")
    if num_commas >= MAX_VALUES:
        raise _too_much(MAX_VALUES, "values (commas are counted)")
    if text.count(b":") > MAX_KEYS:
        raise _too_much(MAX_KEYS, "keys (colons are counted)")
    for pattern, limit in SLOW_NUMBERS:
        if num_commas >= limit and any(islice(pattern.finditer(text), limit, None)):
            raise _too_much(limit, "very large numbers")


def _too_much(limit: int, what: str) -> BodyTooLarge:
    return BodyTooLarge(f"The request has more than {limit} {what}; send several smaller requests.")
