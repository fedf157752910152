"""`octavo run-batch` with the default model: answers as a server's, order, signals, metrics."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.integration.server import ROOT, free_port, serving


def start(*words: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "octavo", "run-batch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


def run(*words: str, **env: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    with start(*words, **env) as process:
        try:
            output, errors = process.communicate(timeout=100)
        finally:
            process.kill()
    return process.returncode, output, errors


PART = "out.jsonl.part"


def lines_of(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().splitlines()]


def line(custom_id: str, url: str, **body: Any) -> str:
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}) + "\n"


def completion(custom_id: str, prompt: str, **body: Any) -> str:
    return line(custom_id, "/v1/completions", prompt=prompt, temperature=0, **body)


def chat(custom_id: str, text: str, **body: Any) -> str:
    messages = [{"role": "user", "content": text}]
    return line(custom_id, "/v1/chat/completions", messages=messages, temperature=0, **body)


def test_a_batch_has_the_answers_of_a_server(tmp_path: Path) -> None:
    prompts = ["The capital of France is", "One, two, three,", "Once upon a time"]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        chat("chat", "What is tea?", max_tokens=8)
        + "this is no request\n"
        + "".join(completion(f"c{n}", p, max_tokens=3 + 9 * n) for n, p in enumerate(prompts))
        + chat("schema", "A name?", max_tokens=20, response_format={"type": "json_object"})
        + completion("bad", "x", max_tokens=-1)
        + line("other", "/v1/embeddings", input="x")
        + completion("window", "x", max_tokens=10**6)
        + completion("many", "I am", n=3, max_tokens=4)
    )
    # an API key of the environment is a server's
    code, _, errors = run("-i", str(source), "-o", str(target), VLLM_API_KEY="a-secret-key")
    assert code == 0, errors
    outputs = {o["custom_id"]: o for o in lines_of(target)}
    assert list(outputs) == [
        *("chat", None, "c0", "c1", "c2", "schema", "bad", "other", "window", "many"),
    ]
    failed = [name for name, output in outputs.items() if output["error"] is not None]
    assert failed == [None, "bad", "other", "window"]
    assert "6 requests are answered, 4 have an error" in errors
    with serving(tmp_path / "log") as server:
        for n, prompt in enumerate(prompts):
            told = server.complete(prompt, max_tokens=3 + 9 * n)
            answer = outputs[f"c{n}"]["response"]["body"]
            assert answer["choices"] == told["choices"]
            assert answer["usage"] == told["usage"]
        told = server.chat("What is tea?", max_tokens=8)
        assert outputs["chat"]["response"]["body"]["choices"] == told["choices"]
    assert len(outputs["many"]["response"]["body"]["choices"]) == 3


@contextlib.contextmanager
def running_batch(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A batch whose first line is answered and whose others take long; killed at the end."""
    source = folder / "in.jsonl"
    source.write_text(
        completion("quick", "a", max_tokens=1)
        + "".join(completion(f"long{n}", "b", max_tokens=8000, ignore_eos=True) for n in range(3))
    )
    port = free_port()
    address = ("--enable-metrics", "--host", "127.0.0.1", "--port", str(port))
    target = str(folder / "out.jsonl")
    process = start("-i", str(source), "-o", target, "--max-num-seqs", "2", *address)
    try:
        deadline = time.monotonic() + 60
        page = ""
        while "vllm:generation_tokens_total{" not in page or not lines_of(folder / PART):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            with contextlib.suppress(OSError):
                url = f"http://127.0.0.1:{port}/metrics"
                page = urllib.request.urlopen(url, timeout=5).read().decode()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_signal_leaves_what_was_answered_and_no_process(tmp_path: Path) -> None:
    with running_batch(tmp_path) as process:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 143
    assert errors.splitlines()[-1].startswith("octavo: error: ended by SIGTERM; the first 1 lines")
    assert not (tmp_path / "out.jsonl").exists()
    (only,) = lines_of(tmp_path / PART)
    assert only["custom_id"] == "quick"
    assert children
    psutil.wait_procs(children, timeout=5)
    assert not any(child.is_running() for child in children)


def test_the_death_of_the_engine_ends_the_batch_with_its_reason(tmp_path: Path) -> None:
    with running_batch(tmp_path) as process:
        (core,) = psutil.Process(process.pid).children(recursive=True)
        core.kill()
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("octavo: error: The engine core is gone: ")
    assert not (tmp_path / "out.jsonl").exists()
    assert lines_of(tmp_path / PART)[0]["custom_id"] == "quick"


def test_a_model_that_is_not_there_leaves_no_output(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(completion("a", "x"))
    code, _, errors = run("-i", str(source), "-o", str(tmp_path / "out"), "--model", "/no.gguf")
    assert code == 2
    assert "/no.gguf" in errors.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_standard_output_may_be_the_output(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(completion("a", "x", max_tokens=2))
    code, output, errors = run("-i", str(source), "-o", "/dev/stdout")
    assert code == 0, errors
    assert json.loads(output)["custom_id"] == "a"
