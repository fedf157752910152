"""The name a user may have meant.

Runs in: the command line, `EngineArgs`. Knows nothing of: flags.
"""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, names: Iterable[str], *, shown: str = "{}") -> str:
    """ "; did you mean --port?" or an empty string. `shown` frames each name, e.g. "--{}"."""
    import difflib  # only after a mistake; costs 10 ms

    names = list(names)
    close = difflib.get_close_matches(word, names, n=2, cutoff=0.72)
    # a part of a name is a guess that edit distance misses: --max-model, --model-len
    begins = [name for name in names if name.startswith(word)] if len(word) > 2 else []
    holds = [name for name in names if word in name] if len(word) > 3 else []
    best = list(dict.fromkeys([*begins[:2], *close, *holds]))[:2]
    if not best:
        return ""
    return f"; did you mean {' or '.join(shown.format(name) for name in best)}?"
