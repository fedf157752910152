"""A server's whole life as its log tells it equals a committed file, line by line.

Numbers, pids, times, ports and ids stand as N; the two processes' lines are put apart, since how
they interleave is chance. Rewrite the file with `python -m tests.integration.test_golden_log` after
a change of what is said, and read it.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.integration.server import ROOT, Server, Stream, serving

GOLDEN = Path(__file__).resolve().parents[1] / "data/golden/log.txt"
API_KEY = "sk-golden-0123456789abcdef"
HF_TOKEN = "hf_golden0123456789abcdef"
KEY = {"Authorization": f"Bearer {API_KEY}"}

LINE = re.compile(
    r"\((?P<process>\w+) pid=\d+\) (?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d "
    r"\[(?P<file>[\w.]+):\d+\] (?P<text>.*)"
)
OUR_FILES = {path.name for path in (ROOT / "octavo").rglob("*.py")}
#: what differs between two runs -> what stands for it
REPLACED = (
    (r"\b\d+\.\d+\.\d+\.\d+:\d+", "HOST:PORT"),
    (r"\b(cmpl|chatcmpl)-[\w-]+", r"\1-ID"),
    (r"\b(avx\w+|scalar|amx\w*) kernels", "ISA kernels"),
    (r" \((bfloat16|rotated int8) ones for prompts\)", ""),  # of some ISAs
    # whole numbers and those with points or commas; not Q4_1, v1, HTTP/1.1, and no HTTP status
    (r'(?<![\w./])(?<!" )\d+(?:[.,]\d+)*', "N"),
    (r" +", " "),
)
#: what vLLM users look for
GREPPED = (
    "non-default args: {",
    "KV cache size: ",
    "Maximum concurrency for ",
    "Started server process [",
    "Waiting for application startup.",
    "Application startup complete.",
    "Avg prompt throughput: ",
    "Avg generation throughput: ",
    "KV cache usage: ",
    "Prefix cache hit rate: ",
    '"POST /v1/completions HTTP/1.1" 200 OK',
    "Shutting down",
    "Application shutdown complete.",
    "Finished server process [",
)


def normalised(log: str) -> str:
    """The log without what differs between two runs that do the same."""
    process_to_lines: dict[str, list[str]] = {}
    for line in log.splitlines():
        found = LINE.fullmatch(line)
        assert found, f"not the format of a log line: {line!r}"
        text = found["text"]
        for pattern, replacement in REPLACED:
            text = re.sub(pattern, replacement, text)
        file = found["file"] if found["file"] in OUR_FILES else "uvicorn"
        # written by the clock, so at no certain place and no certain number of times
        process = "statistics" if "Avg prompt" in text else found["process"]
        front = f"({found['process']} pid=N) {found['level']} MM-DD HH:MM:SS [{file}:N]"
        process_to_lines.setdefault(process, []).append(f"{front} {text}")
    process_to_lines["statistics"] = sorted(set(process_to_lines["statistics"]))
    return "\n".join("\n".join(lines) for _, lines in sorted(process_to_lines.items())) + "\n"


def live_and_die(folder: Path) -> tuple[str, list[bytes]]:
    """The log of a server that answers one request, is left by the client of another, and ends by
    SIGTERM; and everything else it said to anybody."""
    said: list[bytes] = []
    with serving(
        folder / "log",
        # what is measured or found on this machine would be another line on another one
        *("--max-num-batched-tokens", "512", "--cpu-threads", "1"),
        *("--api-key", API_KEY),
        env={"HF_TOKEN": HF_TOKEN, "VLLM_LOGGING_LEVEL": None, "VLLM_LOG_STATS_INTERVAL": "1"},
    ) as server:
        family = [psutil.Process(server.pid), *server.children()]
        said += [" ".join(process.cmdline()).encode() for process in family]
        said += [(Path("/proc") / str(process.pid) / "comm").read_bytes() for process in family]
        status, answer = server.post(
            "/v1/completions", {"prompt": "One, two,", "max_tokens": 4}, headers=KEY
        )
        assert status == 200, answer
        with Stream(
            server,
            "/v1/completions",
            {"prompt": "a", "max_tokens": 8000, "ignore_eos": True},
            headers=KEY,
        ) as stream:
            next(stream.events())
        wait_for(server, "Aborted request")
        said += [ask(server, path) for path in ("/metrics", "/version", "/health", "/v1/models")]
        said += [ask(server, path, KEY) for path in ("/openapi.json", "/docs", "/v1/models")]
        ask(server, f"/v1/models/{API_KEY}", KEY)  # its answer may name it, the log may not
        said.append(ask(server, "/v1/models", {"Authorization": f"Bearer {API_KEY[:-1]}"}))
        said.append(server.request("POST", "/v1/completions", b"{", headers=KEY)[2])
        wait_for(server, "Avg prompt throughput")
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0, server.log
        return server.log, said


def ask(server: Server, path: str, headers: dict[str, str] | None = None) -> bytes:
    """Headers and body of an answer, as they were sent."""
    _, names, body = server.request("GET", path, headers=headers)
    return repr(names).encode() + body


def wait_for(server: Server, text: str, limit_s: int = 20) -> None:
    """Until the log has `text`."""
    for _ in range(limit_s * 50):
        if text in server.log:
            return
        server.pause(0.02)
    raise AssertionError(f"no {text!r} after {limit_s} s in:\n{server.log}")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[bytes]]:
    return live_and_die(tmp_path_factory.mktemp("golden"))


def test_the_log_equals_the_golden_one(life: tuple[str, list[bytes]]) -> None:
    assert normalised(life[0]).splitlines() == GOLDEN.read_text().splitlines()


def test_what_vllm_users_look_for_is_there(life: tuple[str, list[bytes]]) -> None:
    missing = [text for text in GREPPED if text not in life[0]]
    assert missing == []


def test_no_colour_and_no_progress_bar_off_a_terminal(life: tuple[str, list[bytes]]) -> None:
    assert "\x1b" not in life[0]
    assert "\r" not in life[0]


def test_secrets_are_said_to_nobody(life: tuple[str, list[bytes]]) -> None:
    log, said = life
    assert len(said) >= 10
    for secret in (API_KEY, HF_TOKEN):
        assert secret not in log
        assert [text for text in said if secret.encode() in text] == []


def write() -> None:
    """Writes the golden log anew."""
    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.write_text(normalised(live_and_die(Path(folder))[0]))


if __name__ == "__main__":
    sys.exit(write())
