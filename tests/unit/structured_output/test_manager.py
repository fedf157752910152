from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from octavo.config.engine import SchedulerConfig
from octavo.core.engine_core import EngineCore
from octavo.messages.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from octavo.messages.grammar import Vocabulary
from octavo.messages.step import GrammarMasks, ModelRunnerOutput, PendingMasks, SchedulerOutput
from octavo.structured_output.manager import (
    GrammarEnd,
    GrammarFailure,
    NoStructuredOutput,
    StructuredOutputManager,
)
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor, solo_output
from tests.fakes.requests import core_request


class MadeMasks:
    def pause(self) -> None:
        pass

    def result(self) -> GrammarMasks:
        return GrammarMasks(memoryview(b"mask"), [0])


class CountingGrammars:
    """A grammar that lets "g" generate three tokens, and is ready when the test says so."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.forgotten: list[str] = []
        self.masked: list[list[str]] = []
        self.has_compiled = False
        self.failure: GrammarFailure | None = None
        self.error_after: int | None = None
        self.is_closed = False
        self.num_begun = 0
        self._num_tokens = 0

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        pass

    def add(self, request: EngineCoreRequest) -> None:
        self.added.append(request.request_id)

    def constrains(self, request_id: str) -> bool:
        return request_id == "g"

    def is_ready(self, request_id: str) -> bool:
        return request_id != "g" or self.has_compiled

    def take_failures(self) -> Sequence[GrammarFailure]:
        failure, self.failure = self.failure, None
        return () if failure is None else (failure,)

    def begin_masks(self) -> None:
        self.num_begun += 1

    def masks(self, request_ids: Sequence[str]) -> MadeMasks:
        self.masked.append(list(request_ids))
        return MadeMasks()

    def accept(self, request_id: str, token_ids: Sequence[int]) -> GrammarEnd | None:
        assert request_id == "g"
        self._num_tokens += len(token_ids)
        if self._num_tokens == self.error_after:
            return GrammarEnd("The output left its grammar.")
        return GrammarEnd() if self._num_tokens >= 3 else None

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)

    def close(self) -> None:
        self.is_closed = True


class MaskTakingExecutor(FakeExecutor):
    """Keeps the masks of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[GrammarMasks | None] = []

    def execute_model(
        self, scheduled: SchedulerOutput, grammar_masks: PendingMasks | None = None
    ) -> Future[ModelRunnerOutput]:
        self.masks.append(None if grammar_masks is None else grammar_masks.result())
        return super().execute_model(scheduled, grammar_masks)


def step(core: EngineCore) -> list[EngineCoreOutput]:
    said = core.step()
    return [] if said is None else said.outputs


def run(core: EngineCore) -> list[EngineCoreOutput]:
    outputs = []
    while core.has_work:
        outputs += step(core)
    return outputs


def engine(
    grammars: StructuredOutputManager, **config: int
) -> tuple[EngineCore, MaskTakingExecutor]:
    executor = MaskTakingExecutor()
    made = engine_config(scheduler=SchedulerConfig(**config))
    return EngineCore(made, executor, structured_output=grammars), executor


def ready() -> CountingGrammars:
    grammars = CountingGrammars()
    grammars.has_compiled = True
    return grammars


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


def test_a_grammar_masks_its_rows_and_ends_its_request_with_the_last_token_as_text() -> None:
    grammars = ready()
    core, executor = engine(grammars)
    core.add_request(core_request("g", max_tokens=50))
    core.add_request(core_request("other", max_tokens=5))
    outputs = run(core)
    assert executor.steps[0].grammar_request_ids == ["g"]
    assert executor.masks == [GrammarMasks(memoryview(b"mask"), [0])] * 3 + [None] * 2
    mine = [output for output in outputs if output.request_id == "g"]
    assert [t for o in mine for t in o.new_token_ids] == solo_output([1, 2, 3], 3)
    assert mine[-1].finish_reason is FinishReason.STOP
    assert mine[-1].is_complete
    assert not any(output.is_complete for output in outputs if output.request_id != "g")
    assert grammars.forgotten.count("g") == 1


def test_only_requests_that_sample_are_masked() -> None:
    grammars = ready()
    core, executor = engine(grammars, max_num_batched_tokens=16)
    core.add_request(core_request("g", list(range(1, 41)), max_tokens=1))
    run(core)
    assert [s.grammar_request_ids for s in executor.steps] == [[], [], ["g"]]


def test_an_output_complete_with_its_last_allowed_token_ends_with_stop() -> None:
    core, _ = engine(ready())
    core.add_request(core_request("g", max_tokens=3))
    assert run(core)[-1].finish_reason is FinishReason.STOP


def test_an_output_cut_by_max_tokens_ends_with_length() -> None:
    core, _ = engine(ready())
    core.add_request(core_request("g", max_tokens=2))
    assert run(core)[-1].finish_reason is FinishReason.LENGTH


def test_a_failed_compile_ends_its_request_alone_as_its_senders_mistake() -> None:
    grammars = CountingGrammars()
    core, _ = engine(grammars)
    core.add_request(core_request("g"))
    core.add_request(core_request("other", max_tokens=2))
    grammars.failure = GrammarFailure("g", "It is too large.")
    outputs = run(core)
    (failed,) = [output for output in outputs if output.request_id == "g"]
    assert (failed.error, failed.is_request_error) == ("It is too large.", True)
    others = [t for o in outputs if o.request_id == "other" for t in o.new_token_ids]
    assert others == solo_output([1, 2, 3], 2)
    assert grammars.forgotten.count("g") == 1


def test_a_failure_in_the_middle_ends_its_request_alone() -> None:
    grammars = ready()
    grammars.error_after = 2
    core, _ = engine(grammars)
    core.add_request(core_request("g", max_tokens=50))
    core.add_request(core_request("other", max_tokens=4))
    outputs = run(core)
    mine = [output for output in outputs if output.request_id == "g"]
    assert [output.new_token_ids for output in mine] == [solo_output([1, 2, 3], 1), []]
    assert mine[-1].finish_reason is FinishReason.ERROR
    assert mine[-1].error == "The output left its grammar."
    others = [t for o in outputs if o.request_id == "other" for t in o.new_token_ids]
    assert others == solo_output([1, 2, 3], 4)


def test_an_aborted_request_is_forgotten() -> None:
    grammars = CountingGrammars()
    core, _ = engine(grammars)
    core.add_request(core_request("g"))
    core.abort_requests(["g"])
    assert grammars.forgotten == ["g"]


def test_grammars_end_with_the_core() -> None:
    grammars = CountingGrammars()
    core, _ = engine(grammars)
    core.shutdown()
    assert grammars.is_closed


def test_without_grammars_nothing_is_masked_and_everything_is_ready() -> None:
    core, executor = engine(NoStructuredOutput())
    core.add_request(core_request("g", max_tokens=2))
    run(core)
    assert [s.grammar_request_ids for s in executor.steps] == [[], []]
    assert executor.masks == [None, None]
