"""`from octavo import LLM, SamplingParams` as users run it: real programs over the default model.

Each test is one program; what it finds out it prints as JSON, since `LLM` itself prints nothing.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from typing import Any

import pytest

from tests.integration.server import ROOT, Server

LIMIT_S = 90
PROMPT = "The capital of France is"
BEGIN = """
import json, logging, os, signal, sys, threading, time
from octavo import LLM, SamplingParams
from octavo.errors import OctavoError
greedy = SamplingParams(temperature=0.0, max_tokens=8)
"""


def start(code: str, **options: Any) -> subprocess.Popen[str]:
    """A program that begins with the usual imports."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    environ |= {"PYTHONPATH": str(ROOT)}
    environ.pop("TQDM_DISABLE", None)
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
        # a job in the background of a shell ignores SIGINT, and so would this program
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **{"stderr": None, **options},
    )


def run(code: str) -> tuple[Any, str]:
    """What a program printed on stdout, decoded, and what on stderr."""
    process = start(code, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    return json.loads(out), err


def test_generate_and_chat_give_what_the_server_gives(live: Server) -> None:
    found, _ = run(
        f"""
with LLM() as llm:
    outputs = llm.generate([{PROMPT!r}, "One, two, three,"], greedy)
    (chat,) = llm.chat([dict(role="user", content="What is 2+2?")], greedy)
    (by_ids,) = llm.generate([outputs[0].prompt_token_ids], greedy)
print(json.dumps(dict(
    texts=[o.outputs[0].text for o in outputs], prompts=[o.prompt for o in outputs],
    reasons=[o.outputs[0].finish_reason for o in outputs], finished=[o.finished for o in outputs],
    chat=chat.outputs[0].text, chat_prompt=chat.prompt, by_ids=by_ids.outputs[0].text,
)))"""
    )
    served = [
        live.complete(prompt, max_tokens=8)["choices"][0] for prompt in (PROMPT, "One, two, three,")
    ]
    assert found["texts"] == [choice["text"] for choice in served]
    assert found["reasons"] == [choice["finish_reason"] for choice in served]
    assert found["prompts"] == [PROMPT, "One, two, three,"]
    assert found["finished"] == [True, True]
    assert found["by_ids"] == found["texts"][0]
    answer = live.chat("What is 2+2?", max_tokens=8)["choices"][0]["message"]["content"]
    assert found["chat"] == answer
    assert found["chat_prompt"].endswith(
        "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_several_outputs_and_logprobs() -> None:
    found, _ = run(
        f"""
with LLM() as llm:
    several = SamplingParams(n=3, temperature=1.0, seed=7, max_tokens=8)
    (drawn,) = llm.generate([{PROMPT!r}], several)
    (known,) = llm.generate([{PROMPT!r}], SamplingParams(
        temperature=0.0, max_tokens=4, logprobs=2, prompt_logprobs=1))
one = known.outputs[0]
print(json.dumps(dict(
    indices=[o.index for o in drawn.outputs], drawn=[o.text for o in drawn.outputs],
    ids=one.token_ids, ranks=[[p.rank for p in entry.values()] for entry in one.logprobs],
    keys=[list(entry) for entry in one.logprobs],
    sum=sum(entry[i].logprob for i, entry in zip(one.token_ids, one.logprobs)),
    cumulative=one.cumulative_logprob, num_prompt=len(known.prompt_token_ids),
    prompt=[None if e is None else [p.decoded_token for p in e.values()][:1]
            for e in known.prompt_logprobs],
)))"""
    )
    assert found["indices"] == [0, 1, 2]
    assert len(set(found["drawn"])) == 3
    assert [keys[0] for keys in found["keys"]] == found["ids"]  # the chosen one comes first
    assert found["ranks"] == [[1, 2]] * 4
    assert found["sum"] == pytest.approx(found["cumulative"])
    assert found["prompt"][0] is None
    assert found["prompt"][1:] == [[" capital"], [" of"], [" France"], [" is"]]
    assert found["num_prompt"] == 5


BAR = """
with LLM() as llm:
    llm.generate(["a", "b"], greedy, use_tqdm={use_tqdm})
print("null")"""


@pytest.mark.parametrize(("use_tqdm", "is_shown"), [(True, True), (False, False)])
def test_a_terminal_shows_progress_unless_told_otherwise(use_tqdm: bool, is_shown: bool) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = start(BAR.format(use_tqdm=use_tqdm), stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert (b"Processed prompts: 100%" in seen) == is_shown, seen


def test_a_program_without_a_terminal_prints_nothing_of_ours() -> None:
    found, err = run(BAR.format(use_tqdm=True))
    assert found is None
    assert err == ""


def test_notes_and_warnings_go_to_logging_alone() -> None:
    found, err = run(
        """
records = []
class Keep(logging.Handler):
    def emit(self, record):
        records.append([record.levelname, record.getMessage()])
logging.getLogger("octavo").addHandler(Keep())
logging.getLogger("octavo").setLevel("INFO")
with LLM(enforce_eager=True, max_model_len=1024) as llm:
    pass
print(json.dumps(records))"""
    )
    warnings = [text for level, text in found if level == "WARNING"]
    assert any("enforce-eager has no effect" in text for text in warnings), warnings
    notes = [text for level, text in found if level == "INFO"]
    for expected in ("dtype auto:", "compute thread", "KV cache size: "):
        assert any(expected in text for text in notes), (expected, notes)
    assert err == ""


def test_closed_and_opened_again_it_leaves_nothing_behind() -> None:
    found, _ = run(
        """
import gc
def state():
    gc.collect()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    files = sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")[:-1])
    return dict(anon_kb=int(status["RssAnon"].split()[0]), threads=int(status["Threads"]),
                python_threads=threading.active_count(), files=len(files),
                sockets=[f for f in files if "socket" in f],
                maps=sum("gguf" in line for line in open("/proc/self/maps")))
states = []
for number in range(5):
    llm = LLM(max_model_len=2048)
    text = llm.generate(["a"], greedy)[0].outputs[0].text
    inside = state()
    if number % 2:
        llm.close()
        llm.close()  # again: nothing happens
    del llm  # closes where nobody did
    states.append(state())
print(json.dumps(dict(states=states, inside=inside, text=text)))"""
    )
    first, *later = found["states"]
    for state in later:
        assert state["threads"] == first["threads"]
        assert state["python_threads"] == 1
        assert state["files"] == first["files"]
        assert state["maps"] == 0
        # the library's working memory comes and goes; weights are 94,000 kB
        assert state["anon_kb"] < first["anon_kb"] + 15_000, found["states"]
    assert found["inside"]["sockets"] == []
    assert found["inside"]["anon_kb"] > first["anon_kb"] + 80_000


def test_after_close_it_says_so() -> None:
    found, _ = run(
        """
llm = LLM()
llm.close()
try:
    llm.generate(["a"], greedy)
except OctavoError as error:
    print(json.dumps(error.message))"""
    )
    assert found == "This LLM is closed; make a new one."


MISTAKES = {
    "LLM(max_model_lenn=100)": ["max_model_lenn", "did you mean max_model_len"],
    "LLM(port=8000)": ["port", "one of the server's"],
    "LLM('/does/not/exist.gguf')": ["/does/not/exist.gguf"],
    "LLM(dtype='float16')": ["float16", "use --dtype auto"],
    "LLM(dtype='int3')": ["dtype", "int3"],
    "LLM(max_model_len='many')": ["max-model-len", "many"],
    "LLM(max_model_len=10**7)": ["max-model-len", "10000000"],
    "LLM(block_size=0)": ["block-size", "0"],
    "LLM(kv_cache_memory_bytes=1000)": ["kv-cache-memory-bytes", "1000", "at least two"],
    "LLM(tensor_parallel_size=2)": ["tensor-parallel-size"],
    "SamplingParams(temperature=-1)": ["temperature", "-1"],
    "SamplingParams(n=0)": ["n", "0"],
    "SamplingParams(top_p=2)": ["top_p", "2"],
}


@pytest.fixture(scope="module")
def sentences() -> tuple[dict[str, str], str]:
    """What each mistake is answered with, and what was printed."""
    return run(
        f"""
sentences = dict()
for call in {list(MISTAKES)!r}:
    try:
        eval(call)
    except OctavoError as error:
        sentences[call] = error.message
print(json.dumps(sentences))"""
    )


@pytest.mark.parametrize("call", MISTAKES)
def test_a_mistake_is_one_sentence_that_names_it(
    sentences: tuple[dict[str, str], str], call: str
) -> None:
    message = sentences[0][call]
    for word in MISTAKES[call]:
        assert word in message
    assert "\n" not in message
    assert sentences[1] == ""


def test_an_interrupt_ends_the_batch_and_not_the_engine() -> None:
    found, _ = run(
        f"""
with LLM() as llm:
    before = llm.generate([{PROMPT!r}], greedy)[0].outputs[0].text
    long = SamplingParams(temperature=0.0, max_tokens=5000, ignore_eos=True)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        llm.generate([{PROMPT!r}] * 4, long)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    took_s = time.monotonic() - began
    after = llm.generate([{PROMPT!r}], greedy)[0].outputs[0].text
    is_reset = llm.reset_prefix_cache()  # nothing runs any more
    handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler
print(json.dumps(dict(interrupted=interrupted, took_s=took_s, same=before == after,
                      is_reset=is_reset, handler=handler)))"""
    )
    assert found["interrupted"]
    assert found["took_s"] < 10
    assert found["same"]
    assert found["is_reset"]
    assert found["handler"]


def test_a_failed_prompt_of_a_batch_leaves_the_engine_usable() -> None:
    found, _ = run(
        """
with LLM(max_model_len=64) as llm:
    try:
        llm.generate(["a", "b " * 500], greedy)
        message = ""
    except OctavoError as error:
        message = error.message
    text = llm.generate(["a"], greedy)[0].outputs[0].text
print(json.dumps([message, text]))"""
    )
    assert "64" in found[0]
    assert found[1]
