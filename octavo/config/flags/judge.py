"""What happens to a flag that is set: nothing, a warning, or a refusal with the reason.

Runs in: the command line, `EngineArgs`. Owns: the wording. Knows nothing of: parsing.
"""

from __future__ import annotations

from octavo.config.flags.flag import HINT, REMOVED, UNSUPPORTED, Flag
from octavo.errors import ConfigError


def judge(flag: Flag, value: object) -> str | None:
    """A warning for the log if the flag has no effect here, else None.

    Raises:
        ConfigError: the value would change results or capacity and is not supported.
    """
    if flag.status == REMOVED:
        if flag.fatal:
            raise ConfigError(f"--{flag.name} is gone from vLLM's command line: {flag.why}")
        return f"--{flag.name} is gone from vLLM's command line and has no effect: {flag.why}"
    if value == flag.default or value is None:
        return None
    if flag.status == UNSUPPORTED:
        raise ConfigError(f"--{flag.name} is not supported: {flag.why}")
    if flag.status == HINT:
        return f"--{flag.name} has no effect here: {flag.why}"
    if flag.supported is not None and value not in flag.supported:
        options = ", ".join(str(option) for option in flag.supported)
        raise ConfigError(
            f"--{flag.name} {value} is not supported ({flag.why}); supported: {options}"
        )
    return None
