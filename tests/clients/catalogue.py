"""The clients that are tried, and the servers they are tried against.

Runs in: the runner of `make test-clients`. Owns: both lists.
Knows nothing of: how environments are made and scripts run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from octavo.envs import read_environ
from octavo.weights.hub import hub_settings, locate
from scripts.models import path_of

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
KEY = "sk-octavo-clients"


@dataclass(frozen=True)
class ServerKind:
    """A way to start `octavo serve`.

    Attributes:
        model: name of a model of `scripts/models.py`; None serves the default one.
        served_name: what clients call it.
    """

    name: str
    served_name: str
    flags: tuple[str, ...] = ()
    model: str | None = None

    def arguments(self) -> tuple[str, ...]:
        """The flags of the command line, the name and the key among them."""
        return ("--served-model-name", self.served_name, "--api-key", KEY, *self.flags)

    def path(self) -> str:
        """The file to serve, fetched if it is not there."""
        if self.model is None:
            return locate(None, hub_settings(read_environ()))
        return str(path_of(self.model))


#: as in vLLM with xgrammar, which closes objects whose schema does not say that they are open:
#: small models invent properties otherwise until max_tokens ends them
CLOSED = ("--structured-outputs-config.disable_additional_properties", "true")

TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser")

SERVERS = (
    ServerKind("small", "smollm2", (*CLOSED, *TOOLS, "hermes")),
    ServerKind(
        "exact",
        "smollm2",
        ("--dtype", "float32", "--max-model-len", "2048", "--enable-tokenizer-info-endpoint"),
    ),
    # of this size, it writes its calls as bare JSON objects, whatever its template asks for
    ServerKind("coder", "qwen-coder", (*CLOSED, *TOOLS, "llama3_json"), "qwen2.5-coder-0.5b"),
)


@dataclass(frozen=True)
class Client:
    """A client in an environment of its own.

    Attributes:
        title: as in the table.
        packages: those whose versions the table shows.
        scripts: file in `scripts` -> names of the servers it is run against.
        language: `python` scripts run in the client's environment; `octavo` ones in this tree's,
            and start the client's program; `node` ones in the folder of its packages.
        limit_s: of one script.
        without: packages that come as dependencies and are removed again: the client does well
            without them, and one built for another torch than the one at hand breaks its imports.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    scripts: tuple[tuple[str, tuple[str, ...]], ...]
    language: Literal["python", "octavo", "node"] = "python"
    limit_s: float = 180.0
    #: used as it is where it exists, instead of an environment made for the purpose
    existing: str | None = None
    without: tuple[str, ...] = ()

    @property
    def requirements(self) -> Path:
        """What its environment is made of."""
        ending = "package.json" if self.language == "node" else "txt"
        return FOLDER / "requirements" / f"{self.name}.{ending}"


def one_script(script: str, *servers: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A client with a single script."""
    return ((script, servers),)


OPENAI = (("openai_client.py", ("small",)), ("openai_tools.py", ("small", "coder")))

CLIENTS = (
    Client("openai3", "openai (Python) 3.x", ("openai",), OPENAI),
    Client("openai2", "openai (Python) 2.x", ("openai",), OPENAI),
    Client(
        "langchain",
        "LangChain",
        ("langchain-openai", "openai"),
        one_script("langchain_client.py", "small", "coder"),
    ),
    Client(
        "llamaindex",
        "LlamaIndex `OpenAILike`",
        ("llama-index-llms-openai-like", "llama-index-core", "openai"),
        one_script("llama_index_client.py", "small", "coder"),
    ),
    Client(
        "instructor",
        "instructor",
        ("instructor", "openai"),
        one_script("instructor_client.py", "small", "coder"),
    ),
    Client(
        "litellm",
        "LiteLLM",
        ("litellm", "openai"),
        one_script("litellm_client.py", "small", "coder"),
    ),
    Client(
        "llm", "simonw's `llm`", ("llm", "openai"), one_script("llm_client.py", "small", "coder")
    ),
    Client(
        "openai-node",
        "openai (npm)",
        ("openai",),
        one_script("openai_node.mjs", "small", "coder"),
        language="node",
    ),
    Client(
        "ai-sdk",
        "AI SDK",
        ("@ai-sdk/openai-compatible", "ai"),
        one_script("ai_sdk.mjs", "small", "coder"),
        language="node",
    ),
    Client(
        "vllm",
        "`vllm bench serve`",
        ("vllm",),
        one_script("vllm_bench.py", "small"),
        language="octavo",
        limit_s=300.0,
        existing=".cache/peers/vllm",
        without=("torchvision", "torchaudio", "torchcodec"),
    ),
    Client(
        "lmeval",
        "lm-eval `local-completions`",
        ("lm-eval", "torch", "transformers"),
        one_script("lm_eval_client.py", "exact"),
        language="octavo",
        limit_s=300.0,
    ),
)
