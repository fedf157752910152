"""`LLM` over a real core with a fake executor: batches, order, errors, life."""

from __future__ import annotations

import signal
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from octavo import LLM, SamplingParams
from octavo.core.engine_core import EngineCore
from octavo.errors import EngineDead, GenerationFailed, InvalidParameter, PromptTooLong
from octavo.frontend.core_client import InprocClient
from octavo.frontend.offline_engine import OfflineEngine
from octavo.frontend.prompt import TextPrompt, TokensPrompt
from octavo.messages.step import ModelRunnerOutput, SchedulerOutput
from octavo.tokenizer.chat_template import ChatTemplate
from tests.fakes.byte_tokenizer import ByteTokenizer
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor, solo_output

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOKENIZER: Any = ByteTokenizer()


class Bench:
    def __init__(self, executor: FakeExecutor | None = None) -> None:
        self.executor = executor or FakeExecutor()
        config = engine_config(max_model_len=200)
        model = msgspec.structs.replace(
            config.model, default_sampling_params={"temperature": 0.5, "max_tokens": 3}
        )
        config = msgspec.structs.replace(config, model=model)
        core = EngineCore(config, self.executor)
        self.llm = LLM.of_engine(
            OfflineEngine(config, TOKENIZER, InprocClient(core), core.ready),
            ChatTemplate(TEMPLATE),
        )


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.llm.close()


def params(max_tokens: int = 4, **fields: Any) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, detokenize=False, **fields)


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text)


def test_outputs_come_in_order_of_the_prompts_whatever_ends_first(bench: Bench) -> None:
    prompts = [[i + 1, 7] for i in range(20)]
    lengths = [20 - i for i in range(20)]
    outputs = bench.llm.generate(prompts, [params(n) for n in lengths])
    assert [o.outputs[0].token_ids for o in outputs] == [
        solo_output(p, n) for p, n in zip(prompts, lengths, strict=True)
    ]
    assert [o.prompt_token_ids for o in outputs] == prompts
    assert all(o.finished and o.outputs[0].finish_reason == "length" for o in outputs)


@pytest.mark.parametrize(
    ("prompts", "token_ids"),
    [
        ("hi", [ids("hi")]),
        (["hi", "you"], [ids("hi"), ids("you")]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["hi", [3]], [ids("hi"), [3]]),
        ({"prompt": "hi"}, [ids("hi")]),
        ({"prompt_token_ids": [1, 2]}, [[1, 2]]),
        ([{"prompt": "hi"}, {"prompt_token_ids": [4]}], [ids("hi"), [4]]),
        (TextPrompt("hi", add_special_tokens=False), [ids("hi")[1:]]),
        ([TokensPrompt([5])], [[5]]),
        ([], []),
    ],
)
def test_prompts_come_in_many_forms(bench: Bench, prompts: Any, token_ids: list[list[int]]) -> None:
    outputs = bench.llm.generate(prompts, params(1))
    assert [o.prompt_token_ids for o in outputs] == token_ids


def test_the_engine_is_idle_when_all_is_said_and_not_before(bench: Bench) -> None:
    for count in (1, 2):
        bench.llm.generate(["one", "two"], params())
        assert bench.executor.calls.count("idle") == count
    assert bench.executor.calls[-1] == "idle"


def test_prompts_share_a_prefix_only_with_those_of_the_same_salt(bench: Bench) -> None:
    prompt = list(range(40))

    def num_cached(**more: str) -> int | None:
        (output,) = bench.llm.generate({"prompt_token_ids": prompt, **more}, params(1))
        return output.num_cached_tokens

    assert [num_cached(), num_cached(), num_cached(cache_salt="mine")] == [0, 32, 0]
    assert [num_cached(cache_salt="mine"), num_cached(cache_salt="yours")] == [32, 0]


@pytest.mark.parametrize("prompt", [{"text": "hi"}, [object()], [1.5, 2]])
def test_what_is_no_prompt_is_refused(bench: Bench, prompt: Any) -> None:
    with pytest.raises(InvalidParameter):
        bench.llm.generate(prompt, params())


def test_without_parameters_the_models_defaults_are_used(bench: Bench) -> None:
    assert bench.llm.get_default_sampling_params().temperature == 0.5
    defaults = msgspec.structs.replace(bench.llm.get_default_sampling_params(), detokenize=False)
    (output,) = bench.llm.generate([1], defaults)
    assert len(output.outputs[0].token_ids) == 3


def test_chat_renders_each_conversation(bench: Bench) -> None:
    one = [{"role": "user", "content": "hi"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "ab"}]}]
    (output,) = bench.llm.chat(one, params(1))
    assert output.prompt == "<user>hi<assistant>"
    assert output.prompt_token_ids == ids("<user>hi<assistant>")[1:]  # no BOS of our own
    outputs = bench.llm.chat([one, parts], params(1), add_generation_prompt=False)
    assert [o.prompt for o in outputs] == ["<user>hi", "<user>ab"]
    (output,) = bench.llm.chat(
        one, params(1), chat_template="{{ bos_token }}{{ messages[0].content }}"
    )
    assert output.prompt == "<bos>hi"


def test_a_bad_prompt_stops_the_batch_before_anything_is_computed(bench: Bench) -> None:
    with pytest.raises(PromptTooLong):
        bench.llm.generate([[1], [1] * 300], params())
    assert bench.executor.steps == []


def test_lists_that_do_not_fit_the_prompts_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidParameter, match="1 entries for 2 prompts"):
        bench.llm.generate([[1], [2]], [params()])
    with pytest.raises(InvalidParameter, match="priority has 3 entries"):
        bench.llm.generate([[1], [2]], params(), priority=[1, 2, 3])


def test_n_outputs_of_a_prompt_come_together(bench: Bench) -> None:
    (output,) = bench.llm.generate([[1, 2]], params(2, n=3))
    assert [o.index for o in output.outputs] == [0, 1, 2]
    assert all(o.token_ids == solo_output([1, 2], 2) for o in output.outputs)


def test_a_failed_request_is_raised_and_the_engine_goes_on(bench: Bench) -> None:
    bench.executor.fail_next = {"0": "it broke"}
    with pytest.raises(GenerationFailed, match="it broke"):
        bench.llm.generate([[1], [2]], params())
    (output,) = bench.llm.generate([[3, 4]], params())
    assert output.outputs[0].token_ids == solo_output([3, 4], 4)


def test_a_step_that_cannot_run_ends_the_engine_with_the_cause() -> None:
    class Broken(FakeExecutor):
        def execute_model(
            self, scheduled: SchedulerOutput, grammar_masks: Future[bytearray] | None = None
        ) -> Future[ModelRunnerOutput]:
            failed: Future[ModelRunnerOutput] = Future()
            failed.set_exception(ValueError("no kernel"))
            return failed

    bench = Bench(Broken())
    with pytest.raises(EngineDead, match="cannot go on: ValueError: no kernel"):
        bench.llm.generate([[1]], params())
    with pytest.raises(EngineDead, match="closed"):
        bench.llm.generate([[1]], params())
    assert bench.executor.calls[-1] == "shutdown"


@pytest.fixture
def _interrupts_raise() -> Iterator[None]:
    """Python's own handler, also where the tests run in the background of a shell, which has its
    jobs ignore SIGINT."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("_interrupts_raise")
def test_an_interrupt_ends_the_batch_and_leaves_a_usable_engine() -> None:
    class Interrupted(FakeExecutor):
        def execute_model(
            self, scheduled: SchedulerOutput, grammar_masks: Future[bytearray] | None = None
        ) -> Future[ModelRunnerOutput]:
            if len(self.steps) == 2:
                signal.raise_signal(signal.SIGINT)
            return super().execute_model(scheduled, grammar_masks)

    bench = Bench(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        bench.llm.generate([[1], [2]], params(50))
    assert len(bench.executor.steps) == 3  # the step in which it came was completed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    (output,) = bench.llm.generate([[5]], params())
    assert output.outputs[0].token_ids == solo_output([5], 4)
    bench.llm.close()


def test_it_ends_with_its_block_and_can_be_closed_again() -> None:
    bench = Bench()
    with bench.llm as llm:
        llm.generate([1], params())
    llm.close()
    assert bench.executor.calls.count("shutdown") == 1
    with pytest.raises(EngineDead, match="closed"):
        llm.generate([1], params())


def test_dropping_it_frees_the_model() -> None:
    bench = Bench()
    executor, llm = bench.executor, weakref.ref(bench.llm)
    bench.llm.generate([1], params())
    del bench
    assert llm() is None
    assert executor.calls[-1] == "shutdown"


def test_the_tokenizer_is_the_models(bench: Bench) -> None:
    assert bench.llm.get_tokenizer() is TOKENIZER
    assert bench.llm.reset_prefix_cache()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    bench.llm.generate([[1], [2]], params())
    assert ("Processed prompts: 100%" in capsys.readouterr().err) is is_terminal
    bench.llm.generate([[1], [2]], params(), use_tqdm=False)
    assert capsys.readouterr().err == ""
