"""Grammars of requests: waiting, masks, progress, ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from octavo.messages.engine import EngineCoreRequest
from octavo.messages.grammar import Grammar, Vocabulary
from octavo.sampling_params import ReasoningMarks
from octavo.structured_output.manager import GrammarEnd
from octavo.structured_output.request_grammars import RequestGrammars
from octavo.structured_output.vocabulary import byte_vocabulary
from tests.fakes.fake_grammars import FakeBackend, FakeCompiled, FakeMatcher
from tests.fakes.requests import core_request

LIMIT_S = 5


class Rig:
    def __init__(self, *, asks_matchers: bool = False, **options: Any) -> None:
        self.backend = FakeBackend(**options)
        self.now_s = 0.0
        self.grammars = RequestGrammars(
            lambda vocabulary: self.backend,
            asks_matchers=asks_matchers,
            compile_budget_s=2,
            clock=lambda: self.now_s,
        )
        self.grammars.set_vocabulary(byte_vocabulary())

    def add(
        self,
        name: str,
        text: str = "abc",
        kind: str = "lark",
        *,
        reasoning: ReasoningMarks | None = None,
        wait: bool = True,
    ) -> None:
        self.grammars.add(request(name, Grammar(kind, text, kind == "json"), reasoning))
        if wait:
            future = self.grammars._requests[name].job.future
            future.exception(LIMIT_S)
            self.grammars.is_ready(name)

    def masks(self, *names: str) -> np.ndarray[Any, Any]:
        masks = self.grammars.masks(names).result().words
        return np.frombuffer(masks, np.uint32).reshape(len(names), -1)


def request(
    name: str, grammar: Grammar | None = None, reasoning: ReasoningMarks | None = None
) -> EngineCoreRequest:
    made = core_request(name, reasoning=reasoning)
    return msgspec.structs.replace(made, grammar=grammar)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.backend.gate.set()
    made.grammars.close()


def test_requests_without_a_grammar_are_no_business_of_this(rig: Rig) -> None:
    rig.grammars.add(request("plain"))
    assert rig.grammars.is_ready("plain")
    assert not rig.grammars.constrains("plain")
    rig.grammars.forget("plain")


def test_a_request_is_ready_once_its_grammar_is_compiled(rig: Rig) -> None:
    rig.backend.gate.clear()
    rig.add("g", wait=False)
    assert rig.grammars.constrains("g")
    assert not rig.grammars.is_ready("g")
    assert rig.grammars.take_failures() == []
    rig.backend.gate.set()
    rig.grammars._requests["g"].job.future.result(LIMIT_S)
    assert rig.grammars.is_ready("g")


def test_masks_come_in_the_order_of_the_names(rig: Rig) -> None:
    rig.add("a")
    rig.add("b")
    masks = rig.masks("b", "a")
    assert masks.tolist() == [[0xFFFFFFFF, *[0] * 8]] * 2


def test_an_output_is_complete_when_its_grammar_is(rig: Rig) -> None:
    rig.add("g", "abc")
    assert rig.grammars.accept("g", [1]) is None
    assert rig.grammars.accept("g", [2, 3]) == GrammarEnd()


def test_requests_with_one_grammar_go_their_own_ways(rig: Rig) -> None:
    rig.add("a", "xy")
    rig.add("b", "xy")
    rig.grammars.accept("a", [1])
    assert rig.grammars.accept("b", [1]) is None
    assert rig.grammars.accept("a", [1]) == GrammarEnd()
    assert rig.backend.compiled == ["xy"]


def test_a_refused_grammar_is_a_failure_of_the_request(rig: Rig) -> None:
    rig.add("g", "bad")
    (failure,) = rig.grammars.take_failures()
    assert (failure.request_id, failure.is_request_error) == ("g", True)
    assert failure.error == "The grammar of the request cannot be used: it is bad."
    assert not rig.grammars.is_ready("g")
    rig.grammars.forget("g")
    assert rig.grammars.take_failures() == ()


def test_an_error_of_ours_is_one_of_ours(rig: Rig) -> None:
    rig.add("g", "bug")
    (failure,) = rig.grammars.take_failures()
    assert not failure.is_request_error
    assert "ZeroDivisionError: a bug" in failure.error


def test_a_compile_that_takes_too_long_is_a_failure(rig: Rig) -> None:
    rig.backend.gate.clear()
    rig.add("g", wait=False)
    assert rig.backend.begun.wait(LIMIT_S)
    rig.now_s = 2.0
    assert rig.grammars.take_failures() == []
    rig.now_s = 2.1
    (failure,) = rig.grammars.take_failures()
    assert "more than 2 s to compile" in failure.error
    assert failure.is_request_error


def test_the_time_to_open_the_library_does_not_count() -> None:
    now_s, gate = [0.0], threading.Event()

    def open_slowly(vocabulary: Vocabulary) -> FakeBackend:
        assert gate.wait(LIMIT_S)
        return FakeBackend(vocabulary)

    grammars = RequestGrammars(open_slowly, compile_budget_s=2, clock=lambda: now_s[0])
    grammars.set_vocabulary(byte_vocabulary())
    grammars.add(request("g", Grammar("lark", "a")))
    now_s[0] = 100.0
    assert grammars.take_failures() == []
    gate.set()
    grammars._requests["g"].job.future.result(LIMIT_S)
    assert grammars.is_ready("g")
    grammars.close()


def test_c31_a_request_that_leaves_takes_its_compile_with_it(rig: Rig) -> None:
    rig.backend.gate.clear()
    rig.add("first", "a", wait=False)
    assert rig.backend.begun.wait(LIMIT_S)
    rig.add("g", "never", wait=False)
    rig.grammars.forget("g")
    rig.add("last", "b", wait=False)
    rig.backend.gate.set()
    rig.grammars._requests["last"].job.future.result(LIMIT_S)
    assert rig.backend.compiled == ["a", "b"]


def test_a_wrong_token_ends_the_output_with_a_reason(rig: Rig) -> None:
    rig.add("g")
    end = rig.grammars.accept("g", [99])
    assert end is not None
    assert end.error == "The output left its grammar: token not allowed."


def test_a_mask_that_cannot_be_made_ends_its_request_alone() -> None:
    rig = Rig(fails_at=1)
    rig.add("fails")
    rig.add("other")
    rig.grammars.accept("fails", [1])
    masks = rig.masks("fails", "other")
    assert masks[0].tolist() == [0xFFFFFFFF] * 9  # whatever it draws does not count
    assert masks[1].tolist() == [0xFFFFFFFF, *[0] * 8]
    end = rig.grammars.accept("fails", [1])
    assert end is not None
    assert "too much work" in str(end.error)
    assert rig.grammars.accept("other", [1]) is None
    rig.grammars.close()


@pytest.mark.parametrize("where", ["accept", "is_complete"])
def test_a_matcher_that_breaks_ends_its_request_alone(rig: Rig, where: str) -> None:
    rig.add("broken")
    rig.add("other")

    def fails(*args: object) -> None:
        raise ZeroDivisionError("a bug")

    class Broken(FakeMatcher):
        pass

    setattr(Broken, where, property(fails) if where == "is_complete" else fails)
    rig.grammars._requests["broken"].matcher = Broken(3, None)
    end = rig.grammars.accept("broken", [1])
    assert end is not None
    assert not end.is_request_error
    assert end.error == "The grammar could not be advanced: ZeroDivisionError: a bug."
    assert rig.grammars.accept("other", [1]) is None


def test_a_mask_that_breaks_is_our_mistake(rig: Rig) -> None:
    class Broken(FakeMatcher):
        def fill_mask(self, mask: Any) -> None:
            raise ZeroDivisionError("a bug")

    rig.add("broken")
    rig.grammars._requests["broken"].matcher = Broken(3, None)
    rig.masks("broken")
    end = rig.grammars.accept("broken", [1])
    assert end is not None
    assert not end.is_request_error
    assert "ZeroDivisionError: a bug" in str(end.error)


def test_a_grammar_that_cannot_be_started_is_a_failure(rig: Rig) -> None:
    class Broken(FakeCompiled):
        def start(self) -> FakeMatcher:
            raise ZeroDivisionError("a bug")

    rig.backend.gate.clear()
    rig.add("broken", "abc", wait=False)
    rig.backend.made = Broken
    rig.backend.gate.set()
    rig.grammars._requests["broken"].job.future.result(LIMIT_S)
    for _ in range(2):  # it is asked again with every step
        assert not rig.grammars.is_ready("broken")
    (failure,) = rig.grammars.take_failures()
    assert not failure.is_request_error
    assert failure.error == "The grammar could not be started: ZeroDivisionError: a bug."
    rig.grammars.forget("broken")
    assert rig.grammars.take_failures() == ()


def test_masks_may_be_awaited_after_their_request_has_gone(rig: Rig) -> None:
    rig.add("g")
    masks = rig.grammars.masks(["g"])
    rig.grammars.forget("g")
    assert len(masks.result().words) == 9 * 4


def test_masks_of_requests_that_moved_are_begun_together_and_made_once(rig: Rig) -> None:
    for name in ("a", "b", "c"):
        rig.add(name, "xxx")
    first = rig.masks("a", "b")
    assert rig.masks("a", "b").tolist() == first.tolist(), "as after a step that failed"
    assert rig.backend.queue.sizes == [2]
    rig.grammars.accept("a", [1])
    rig.grammars.accept("b", [1, 1])
    rig.grammars.begin_masks()
    assert rig.backend.queue.sizes == [2, 2]
    rig.masks("b", "c", "a")
    assert rig.backend.queue.sizes == [2, 2, 1]
    rig.grammars.accept("a", [1])
    rig.grammars.forget("a")
    assert rig.grammars.accept("b", [1]) == GrammarEnd()
    rig.grammars.begin_masks()
    assert rig.backend.queue.sizes == [2, 2, 1], "none for who has ended"


def test_a_sampler_that_can_ask_gets_matchers_and_masks_only_where_more_decides() -> None:
    rig = Rig(asks_matchers=True)
    rig.add("plain", "x" * 100, "json")
    rig.add("thinks", "xx", reasoning=MARKS)
    rig.add("numbers", "x" * 100, "json")
    for number, name in enumerate(("plain", "thinks", "numbers"), 1):
        matcher = rig.grammars._requests[name].matcher
        assert isinstance(matcher, FakeMatcher)
        matcher.handle = number
    guard = rig.grammars._requests["numbers"].guard
    assert guard is not None
    for _ in range(15):
        guard.accept(ord("7"))
    step = rig.grammars.masks(["plain", "thinks", "numbers"])
    found = step.result()
    assert found.matchers == [1, 0, 0]
    assert found.matcher_calls == rig.backend.matcher_calls
    masks = np.frombuffer(found.words, np.uint32).reshape(2, -1).tolist()
    assert masks == [NONE_BUT_END, [0xFFFFFFFF, *[0] * 8]]
    assert rig.backend.queue.sizes == [1], "inside of reasoning nothing is asked"
    rig.grammars.accept("plain", [1])
    rig.grammars.begin_masks()
    assert rig.backend.queue.sizes == [1], "nobody waits for a mask that may not be wanted"
    assert rig.grammars.masks(["plain"]).result().words.nbytes == 0
    rig.grammars.close()


def test_a_matcher_that_a_step_may_still_ask_teaches_nothing() -> None:
    rig = Rig(asks_matchers=True)
    for name in ("aborted", "ended"):
        rig.add(name, "xx")
        matcher = rig.grammars._requests[name].matcher
        assert isinstance(matcher, FakeMatcher)
        matcher.handle = 7
    compiled = rig.grammars._requests["ended"].job.future.result()
    assert isinstance(compiled, FakeCompiled)
    ended = rig.grammars._requests["ended"].matcher
    step = rig.grammars.masks(["aborted", "ended"])
    rig.grammars.forget("aborted")  # while the step computes
    assert compiled.learned == []
    assert step.result().matchers == [7, 7]
    rig.grammars.accept("ended", [1])
    rig.grammars.forget("ended")
    assert compiled.learned == [ended]
    rig.grammars.close()


def test_a_grammar_learns_from_outputs_that_ended_well(rig: Rig) -> None:
    rig.add("ended", "xx")
    rig.add("wrong", "xx")
    matcher = rig.grammars._requests["ended"].matcher
    compiled = rig.grammars._requests["ended"].job.future.result()
    rig.grammars.accept("ended", [1])
    rig.grammars.accept("wrong", [99])
    rig.grammars._requests["wrong"].error = "it cannot be followed"
    rig.grammars.forget("ended")
    rig.grammars.forget("wrong")
    assert isinstance(compiled, FakeCompiled)
    assert compiled.learned == [matcher]


def test_the_thread_that_makes_masks_ends_with_the_rest(rig: Rig) -> None:
    rig.add("g")
    rig.masks("g")
    rig.grammars.close()
    assert rig.backend.queue.is_closed


def test_numbers_are_bounded_in_json_only(rig: Rig) -> None:
    rig.add("json", "x" * 100, "json")
    rig.add("lark", "x" * 100, "lark")
    assert rig.grammars._requests["json"].guard is not None
    assert rig.grammars._requests["lark"].guard is None


def test_a_start_pays_for_no_thread() -> None:
    grammars = RequestGrammars(lambda vocabulary: FakeBackend())
    grammars.close()
    assert not grammars.constrains("x")


MARKS = ReasoningMarks(["<"], [">"], is_open=True)
NONE_BUT_END = [0xFFFFFFFF] * 8 + [0xFFFFFFFE]  # the end token is 256


def test_a_grammar_holds_after_the_reasoning(rig: Rig) -> None:
    rig.add("r", "x", "json", reasoning=MARKS)
    rig.add("plain", "xx")
    assert rig.masks("r", "plain").tolist() == [NONE_BUT_END, [0xFFFFFFFF, *[0] * 8]]
    assert rig.grammars.accept("r", list(b"99999999999999999999999!")) is None
    assert rig.masks("r").tolist() == [NONE_BUT_END]
    assert rig.grammars.accept("r", list(b">")) is None
    assert rig.masks("r").tolist() == [[0xFFFFFFFF, *[0] * 8]]
    assert rig.grammars.accept("r", [5]) == GrammarEnd()


def test_reasoning_and_answer_may_come_at_once(rig: Rig) -> None:
    rig.add("r", "xx", reasoning=MARKS)
    assert rig.grammars.accept("r", [*b"why>", 1, 2]) == GrammarEnd()


def test_a_reply_may_begin_with_reasoning_or_with_the_answer(rig: Rig) -> None:
    marks = ReasoningMarks(["<"], [">"], is_open=False)
    rig.add("r", "x", reasoning=marks)
    rig.add("a", "x", reasoning=marks)
    first = [0xFFFFFFFF, 1 << ord("<") - 32, *[0] * 7]
    assert rig.masks("r", "a").tolist() == [first, first]
    assert rig.grammars.accept("r", [ord("<")]) is None
    assert rig.masks("r").tolist() == [NONE_BUT_END]
    assert rig.grammars.accept("a", [1]) == GrammarEnd()
    rig.add("b", "xx", reasoning=marks)
    assert rig.grammars.accept("b", [1]) is None
    assert rig.masks("b").tolist() == [[0xFFFFFFFF, *[0] * 8]], "later it is no mark"
