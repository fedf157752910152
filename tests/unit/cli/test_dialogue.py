"""Question and answer in a real terminal: a pseudo-terminal with `octavo chat` behind it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fakes.stub_server import MODELS, Asked, Reply, StubServer, answering, events, json_reply

HELLO = events({"choices": [{"delta": {"content": "Hello"}}]})


class Terminal:
    """A program in a terminal: what it prints, and what somebody types."""

    def __init__(self, *words: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "dumb"},
            start_new_session=True,
            # a shell in whose background the tests run has switched Ctrl-C off for its children
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(slave)
        self.text = ""

    def wait_for(self, wanted: str, limit_s: float = 20.0) -> None:
        deadline = time.monotonic() + limit_s
        while wanted not in self.text:
            if not select.select([self._master], [], [], deadline - time.monotonic())[0]:
                raise AssertionError(f"no {wanted!r} in {self.text!r}")
            try:
                self.text += os.read(self._master, 4096).decode().replace("\r\n", "\n")
            except OSError:  # the program has ended
                raise AssertionError(f"no {wanted!r} in {self.text!r}") from None

    def type(self, text: str) -> None:
        self.text = ""
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal would send it to the program."""
        self.text = ""
        self.process.send_signal(signal.SIGINT)

    def end_by_interrupts(self, limit_s: float = 10.0) -> int:
        """Ctrl-C until the program ends, which may take a second one: what comes between printing
        a prompt and waiting for a key is noticed by Python at the next key only. Its exit code."""
        deadline = time.monotonic() + limit_s
        while True:
            self.interrupt()
            try:
                return self.process.wait(2)
            except subprocess.TimeoutExpired:
                assert time.monotonic() < deadline, "Ctrl-C does not end the program"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    made = Terminal(*words)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(("command", "invites"), [("chat", "message"), ("complete", "prompt")])
def test_a_dialogue_ends_with_ctrl_d(command: str, invites: str) -> None:
    stream = events({"choices": [{"delta": {"content": "Hello"}, "text": "Hello"}]})
    with answering(stream) as server, terminal(command, "--url", server.url) as screen:
        screen.wait_for("Using model: a-model\nPlease enter ")
        assert invites in screen.text
        screen.wait_for("> ")
        screen.type("Hi\n")
        screen.wait_for("Hello\n> ")
        screen.type("\x04")
        assert screen.process.wait(10) == 0


def test_ctrl_c_at_the_prompt_ends_without_a_trace() -> None:
    with answering(HELLO) as server, terminal("chat", "--url", server.url) as screen:
        screen.wait_for("> ")
        assert screen.end_by_interrupts() == 0
        assert "Traceback" not in screen.text


def test_ctrl_c_in_an_answer_ends_the_answer_only() -> None:
    gone = threading.Event()

    def piece(text: str) -> bytes:
        return b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % text.encode()

    class Endless(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            try:
                yield piece("begun")
                while True:
                    gone.wait(0.01)
                    yield piece(".")
            finally:
                gone.set()

    def answer(asked: Asked) -> Reply:
        return MODELS if asked.method == "GET" else Reply(body=Endless())

    with StubServer(answer) as server, terminal("chat", "--url", server.url) as screen:
        screen.wait_for("> ")
        screen.type("Hi\n")
        screen.wait_for("begun")
        screen.interrupt()
        screen.wait_for("\n> ")
        assert gone.wait(10)  # the connection was closed
        screen.type("\x04")
        assert screen.process.wait(10) == 0


def test_an_error_in_a_terminal_can_be_asked_again() -> None:
    refusal = json_reply({"error": {"message": "busy"}}, 503)
    with answering(refusal, HELLO) as server, terminal("chat", "--url", server.url) as screen:
        screen.wait_for("> ")
        screen.type("Hi\n")
        screen.wait_for("octavo: error: ")
        screen.wait_for("busy")
        screen.wait_for("> ")
        screen.type("Hi\n")
        screen.wait_for("Hello\n> ")
