from __future__ import annotations

from octavo.core.engine_core import EngineCore
from octavo.messages.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from octavo.messages.step import GrammarStep
from octavo.structured_output.manager import NoStructuredOutput, StructuredOutputManager
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor, solo_output
from tests.fakes.requests import core_request


class CountingGrammars:
    """A grammar that lets "g" generate three tokens, and is ready when the test says so."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.forgotten: list[str] = []
        self.has_compiled = False
        self._num_tokens = 0

    def add(self, request: EngineCoreRequest) -> None:
        self.added.append(request.request_id)

    def constrains(self, request_id: str) -> bool:
        return request_id == "g"

    def is_ready(self, request_id: str) -> bool:
        return request_id != "g" or self.has_compiled

    def masks(self, request_ids: list[str]) -> GrammarStep | None:
        return GrammarStep(["g"], b"mask") if "g" in request_ids else None

    def accept(self, request_id: str, token_ids: list[int]) -> bool:
        assert request_id == "g"
        self._num_tokens += len(token_ids)
        return self._num_tokens >= 3

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)


def step(core: EngineCore) -> list[EngineCoreOutput]:
    said = core.step()
    return [] if said is None else said.outputs


def engine(grammars: StructuredOutputManager) -> tuple[EngineCore, FakeExecutor]:
    executor = FakeExecutor()
    return EngineCore(engine_config(), executor, structured_output=grammars), executor


def test_a_request_waits_for_its_grammar_and_others_pass_it() -> None:
    grammars = CountingGrammars()
    core, _ = engine(grammars)
    core.add_request(core_request("g"))
    core.add_request(core_request("other", max_tokens=2))
    assert [output.request_id for output in step(core)] == ["other"]
    assert [output.request_id for output in step(core)] == ["other"]
    assert step(core) == []
    assert core.has_work
    grammars.has_compiled = True
    assert [output.request_id for output in step(core)] == ["g"]


def test_a_grammar_masks_its_rows_and_ends_its_request() -> None:
    grammars = CountingGrammars()
    grammars.has_compiled = True
    core, executor = engine(grammars)
    core.add_request(core_request("g", max_tokens=50))
    outputs = []
    while core.has_work:
        outputs += step(core)
    assert executor.steps[0].grammar == GrammarStep(["g"], b"mask")
    assert [t for o in outputs for t in o.new_token_ids] == solo_output([1, 2, 3], 3)
    assert outputs[-1].finish_reason is FinishReason.STOP
    assert grammars.added == grammars.forgotten == ["g"]


def test_an_aborted_request_is_forgotten() -> None:
    grammars = CountingGrammars()
    core, _ = engine(grammars)
    core.add_request(core_request("g"))
    core.abort_requests(["g"])
    assert grammars.forgotten == ["g"]


def test_without_grammars_nothing_is_masked_and_everything_is_ready() -> None:
    core, executor = engine(NoStructuredOutput())
    core.add_request(core_request("g", max_tokens=2))
    while core.has_work:
        step(core)
    assert [s.grammar for s in executor.steps] == [None, None]
