"""simonw's `llm`: the command line over `extra-openai-models.yaml`, and its Python API.

Runs in: an environment with `llm`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from proofs import check, target

FOLDER = Path(target.work) / "llm"
FOLDER.mkdir(exist_ok=True)
os.environ["LLM_USER_PATH"] = str(FOLDER)
MODELS = [
    {
        "model_id": "octavo",
        "model_name": target.model,
        "api_base": target.url,
        "api_key_name": "octavo",
        "supports_schema": True,
        "supports_tools": True,
    },
    {
        "model_id": "octavo-text",
        "model_name": target.model,
        "api_base": target.url,
        "api_key_name": "octavo",
        "completion": True,
    },
]
(FOLDER / "extra-openai-models.yaml").write_text(json.dumps(MODELS))  # JSON is YAML
(FOLDER / "keys.json").write_text(json.dumps({"octavo": target.key}))
GREEDY = ("-o", "temperature", "0", "-o", "max_tokens", "24")
LONG = ("-o", "temperature", "0", "-o", "max_tokens", "200")

import llm  # noqa: E402 - it reads LLM_USER_PATH when it is imported


def run(*arguments: str, failing: bool = False) -> str:
    """Standard output of `llm ARGUMENTS`."""
    done = subprocess.run(
        [sys.executable, "-m", "llm", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert bool(done.returncode) == failing, done.stderr
    return done.stderr if failing else done.stdout


@check("command line: a streamed prompt equals one without streaming; the log has its usage")
def prompt() -> None:
    question = "What is the capital of France?"
    streamed = run("-m", "octavo", question, *GREEDY)
    whole = run("-m", "octavo", question, "--no-stream", *GREEDY)
    assert streamed.strip()
    assert streamed == whole
    (last,) = json.loads(run("logs", "list", "-n", "1", "--json"))
    assert last["response"].strip() == whole.strip()
    assert last["input_tokens"] > 0
    assert last["output_tokens"] > 0


@check("command line: a conversation goes on with -c; a system prompt")
def conversation() -> None:
    run("-m", "octavo", "My name is Ada.", "-s", "Be brief.", *GREEDY)
    assert run("-c", "What is my name?", *GREEDY).strip()


@check("command line: --schema gives an object of this form")
def schema() -> None:
    wanted = {
        "type": "object",
        "properties": {"name": {"enum": ["Paris", "London"]}, "big": {"type": "boolean"}},
        "required": ["name", "big"],
        "additionalProperties": False,
    }
    reply = json.loads(run("-m", "octavo", "A city.", "--schema", json.dumps(wanted), *LONG))
    assert reply["name"] in {"Paris", "London"}
    assert isinstance(reply["big"], bool)


@check("command line: the server's sentence is shown when it refuses")
def refused() -> None:
    shown = run("-m", "octavo", "word " * 20_000, failing=True)
    assert "context length" in shown


@check("Python: a completion model, and an async chat model")
async def python() -> None:
    text = llm.get_model("octavo-text")
    assert text.prompt("The sky is", stream=False, max_tokens=8, temperature=0).text()
    model = llm.get_async_model("octavo")
    reply = model.prompt("Say hello.", max_tokens=8, temperature=0)
    assert "".join([piece async for piece in reply]) == await reply.text()


@check("Python: a chain runs the tool that the model calls, and sends its result", "coder")
def tools() -> None:
    def get_weather(city: str) -> str:
        """Get the current weather of a city."""
        called.append(city)
        return f"It is 21 degrees and sunny in {city}."

    called: list[str] = []
    model = llm.get_model("octavo")
    chain = model.chain(
        "What is the weather in Paris? Use the tool.",
        tools=[get_weather],
        options={"temperature": 0, "max_tokens": 200},
    )
    responses = []
    for response in chain.responses():
        responses.append(response.text())
        if len(responses) == 2:  # a small model goes on calling
            break
    assert "Paris" in called[0]


if __name__ == "__main__":
    check.main()
