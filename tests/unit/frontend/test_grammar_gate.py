"""Checks run in a thread, one after the other, within a time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from octavo.errors import EngineDead, InvalidParameter
from octavo.frontend.grammar_gate import GrammarGate
from octavo.messages.grammar import Grammar, Vocabulary
from octavo.sampling_params import StructuredOutputsParams
from octavo.structured_output.vocabulary import byte_vocabulary


class Checker:
    def __init__(self) -> None:
        self.checked: list[str] = []
        self.release = threading.Event()
        self.begun = threading.Event()
        self.release.set()

    def check(self, params: StructuredOutputsParams) -> Grammar:
        assert params.regex is not None
        self.checked.append(params.regex)
        self.begun.set()
        assert self.release.wait(5)
        if params.regex == "bad":
            raise InvalidParameter("It is bad.")
        return Grammar("regex", params.regex)

    def vocabulary(self) -> Vocabulary:
        return byte_vocabulary()


class Core:
    def __init__(self) -> None:
        self.sent = 0
        self.fails = False

    async def send(self, vocabulary: Vocabulary) -> None:
        await asyncio.sleep(0)
        if self.fails:
            raise EngineDead("gone")
        self.sent += 1


def regex(text: str) -> StructuredOutputsParams:
    return StructuredOutputsParams(regex=text)


def test_the_core_gets_the_vocabulary_once_before_all_grammars() -> None:
    async def main() -> None:
        checker, core = Checker(), Core()
        gate = GrammarGate(checker, core.send)
        grammars = await asyncio.gather(*(gate.pass_through(regex(t)) for t in "abc"))
        assert [grammar.text for grammar in grammars] == ["a", "b", "c"]
        assert core.sent == 1
        gate.close()

    asyncio.run(main())


def test_a_vocabulary_that_did_not_arrive_is_sent_again() -> None:
    async def main() -> None:
        core = Core()
        gate = GrammarGate(Checker(), core.send)
        core.fails = True
        with pytest.raises(EngineDead):
            await gate.pass_through(regex("a"))
        core.fails = False
        await gate.pass_through(regex("a"))
        assert core.sent == 1
        gate.close()

    asyncio.run(main())


def test_a_mistake_is_raised_to_its_request() -> None:
    async def main() -> None:
        core = Core()
        gate = GrammarGate(Checker(), core.send)
        with pytest.raises(InvalidParameter, match="It is bad"):
            await gate.pass_through(regex("bad"))
        assert core.sent == 0
        gate.close()

    asyncio.run(main())


def test_the_event_loop_goes_on_meanwhile_and_a_slow_check_is_refused() -> None:
    async def main() -> None:
        checker = Checker()
        gate = GrammarGate(checker, Core().send, budget_s=0.05)
        checker.release.clear()
        with pytest.raises(InvalidParameter, match=r"more than 0.05 s to check"):
            await gate.pass_through(regex("slow"))
        checker.release.set()
        assert (await gate.pass_through(regex("a"))).text == "a"
        gate.close()

    asyncio.run(main())


def test_waiting_for_ones_turn_does_not_count() -> None:
    async def main() -> None:
        checker = Checker()
        gate = GrammarGate(checker, Core().send, budget_s=0.2)
        checker.release.clear()
        first = asyncio.create_task(gate.pass_through(regex("slow")))
        second = asyncio.create_task(gate.pass_through(regex("a")))
        with pytest.raises(InvalidParameter):
            await first
        checker.release.set()
        assert (await second).text == "a"
        gate.close()

    asyncio.run(main())


def test_c31_a_client_that_leaves_takes_its_check_with_it() -> None:
    async def main() -> None:
        checker = Checker()
        gate = GrammarGate(checker, Core().send)
        checker.release.clear()
        first = asyncio.create_task(gate.pass_through(regex("a")))
        await asyncio.to_thread(checker.begun.wait, 5)
        second = asyncio.create_task(gate.pass_through(regex("b")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        checker.release.set()
        await first
        await gate.pass_through(regex("c"))
        assert checker.checked == ["a", "c"]
        gate.close()

    asyncio.run(main())
