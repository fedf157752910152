"""The subcommands: what there is, and a sentence for what there is not.

Runs in: the shell's process. Owns: which function answers which command.
Knows nothing of: what the commands do.
"""

from __future__ import annotations

import importlib

#: command -> one line for `octavo --help`
AVAILABLE = {
    "serve": "start the OpenAI-compatible server",
    "chat": "talk to a running server in this terminal",
    "complete": "let a running server continue texts",
    "bench": "measure: a running server, or the engine in this process",
    "run-batch": "answer a file of OpenAI batch requests without a server",
    "collect-env": "print what a bug report needs to know of this machine",
}

#: command -> `module:function`, by name: a command pays only for its own imports
TARGETS = {
    "serve": "octavo.cli.serve:serve",
    "chat": "octavo.cli.chat:chat",
    "complete": "octavo.cli.complete:complete",
    "bench": "octavo.cli.bench:bench",
    "run-batch": "octavo.cli.run_batch:run_batch",
    "collect-env": "octavo.cli.collect_env:collect_env",
}

_NEVER = "does not exist in Octavo"

#: commands of vLLM that cannot be run -> the rest of the sentence
UNAVAILABLE = {
    "launch": f"{_NEVER}: octavo serve answers the render and tokenize routes itself",
    "preload": f"{_NEVER}: weights are mapped from the page cache",
    "snapshot": f"{_NEVER}: starting takes about a second",
    "download-kernels": f"{_NEVER}: kernels are part of the package",
}


def run(name: str, words: list[str]) -> int:
    """Runs a command of `TARGETS` with the words after it; returns the exit code."""
    module, _, function = TARGETS[name].partition(":")
    exit_code: int = getattr(importlib.import_module(module), function)(words)
    return exit_code
