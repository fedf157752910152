"""Each grammar is compiled once, and only while somebody wants it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octavo.messages.grammar import Grammar
from octavo.structured_output.backend import GrammarError
from octavo.structured_output.compiler import GrammarCompiler
from octavo.structured_output.vocabulary import byte_vocabulary
from tests.fakes.fake_grammars import FakeBackend

LIMIT_S = 5


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def compiler(backend: FakeBackend) -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(lambda vocabulary: backend, max_cached_bytes=150_000)
    made.set_vocabulary(byte_vocabulary())
    yield made
    backend.gate.set()
    made.close()


def grammar(text: str) -> Grammar:
    return Grammar("lark", text)


def test_c32_concurrent_first_uses_compile_once(
    compiler: GrammarCompiler, backend: FakeBackend
) -> None:
    backend.gate.clear()
    jobs = [compiler.hold(grammar("a")) for _ in range(8)]
    backend.gate.set()
    assert len({id(job.future.result(LIMIT_S)) for job in jobs}) == 1
    assert backend.compiled == ["a"]


def test_a_grammar_is_kept_for_who_comes_later(
    compiler: GrammarCompiler, backend: FakeBackend
) -> None:
    job = compiler.hold(grammar("a"))
    first = job.future.result(LIMIT_S)
    compiler.release(job)
    assert compiler.hold(grammar("a")).future.result(LIMIT_S) is first
    assert backend.compiled == ["a"]


def test_kinds_are_different_grammars(compiler: GrammarCompiler, backend: FakeBackend) -> None:
    for kind in ("lark", "regex"):
        compiler.hold(Grammar(kind, "a")).future.result(LIMIT_S)
    assert backend.compiled == ["a", "a"]


def test_what_nobody_waits_for_any_more_is_not_compiled(
    compiler: GrammarCompiler, backend: FakeBackend
) -> None:
    backend.gate.clear()
    running = compiler.hold(grammar("a"))
    assert backend.begun.wait(LIMIT_S)
    queued, wanted = compiler.hold(grammar("b")), compiler.hold(grammar("c"))
    also_queued = compiler.hold(grammar("b"))
    compiler.release(queued)
    assert not also_queued.future.cancelled()  # one still waits
    compiler.release(also_queued)
    compiler.release(running)
    backend.gate.set()
    wanted.future.result(LIMIT_S)
    assert backend.compiled == ["a", "c"]
    # what was being compiled when its request left is there for the next
    assert compiler.hold(grammar("a")).future.done()


def test_the_least_recently_used_are_given_up_for_room(
    compiler: GrammarCompiler, backend: FakeBackend
) -> None:
    for text in ("a", "b", "a", "c"):
        job = compiler.hold(grammar(text))
        job.future.result(LIMIT_S)
        compiler.release(job)
    compiler.hold(grammar("a")).future.result(LIMIT_S)
    compiler.hold(grammar("b")).future.result(LIMIT_S)
    assert backend.compiled == ["a", "b", "c", "b"]


def test_what_requests_hold_is_not_given_up(
    compiler: GrammarCompiler, backend: FakeBackend
) -> None:
    for text in "abcdef":
        compiler.hold(grammar(text)).future.result(LIMIT_S)
    for text in "abcdef":
        compiler.hold(grammar(text))
    assert backend.compiled == list("abcdef")


def test_a_mistake_is_in_the_future_and_not_kept(
    compiler: GrammarCompiler, backend: FakeBackend
) -> None:
    for _ in range(2):
        job = compiler.hold(grammar("bad"))
        assert isinstance(job.future.exception(LIMIT_S), GrammarError)
        compiler.release(job)
    assert backend.compiled == ["bad", "bad"]


def test_a_library_that_does_not_open_fails_every_grammar() -> None:
    def fail(vocabulary: object) -> FakeBackend:
        raise OSError("no such library")

    compiler = GrammarCompiler(fail)
    compiler.set_vocabulary(byte_vocabulary())
    assert isinstance(compiler.hold(grammar("a")).future.exception(LIMIT_S), OSError)
    compiler.close()
