"""The subcommands: what there is, and a sentence for what there is not.

Runs in: the shell's process. Knows nothing of: what the commands do.
"""

from __future__ import annotations

#: command -> one line for `octavo --help`
AVAILABLE = {
    "serve": "start the OpenAI-compatible server",
    "bench": "measure the engine in this process: latency, throughput",
}

_LATER = "is not available yet"
_NEVER = "does not exist in Octavo"

#: commands of vLLM that cannot be run -> the rest of the sentence
UNAVAILABLE = {
    "chat": f"{_LATER}; any OpenAI client can talk to octavo serve",
    "complete": f"{_LATER}; any OpenAI client can talk to octavo serve",
    "run-batch": f"{_LATER}; use octavo.LLM from Python for offline batches",
    "collect-env": f"{_LATER}",
    "launch": f"{_NEVER}: octavo serve answers the render and tokenize routes itself",
    "preload": f"{_NEVER}: weights are mapped from the page cache",
    "snapshot": f"{_NEVER}: starting takes about a second",
    "download-kernels": f"{_NEVER}: kernels are part of the package",
}
