from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import EngineDead, GenerationFailed, InvalidParameter
from octavo.frontend.output_processor import OutputProcessor
from octavo.messages.engine import (
    REPETITION_DETECTED,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    RequestEvents,
    TokenLogprobs,
)
from octavo.outputs import FlatLogprobs
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.fakes.byte_tokenizer import EOS, ByteTokenizer
from tests.fakes.list_sink import ListSink

DELTA = RequestOutputKind.DELTA
CUMULATIVE = RequestOutputKind.CUMULATIVE
FINAL_ONLY = RequestOutputKind.FINAL_ONLY
TOKENIZER = ByteTokenizer()


def request(request_id: str = "r", **params: Any) -> EngineCoreRequest:
    params = {"max_tokens": 100, "output_kind": DELTA, **params}
    return EngineCoreRequest(request_id, [1, 2, 3], SamplingParams(**params), 5.0)


def tokens(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


class Bench:
    """An output processor, one clock and the sinks of its requests."""

    def __init__(self, **arguments: Any) -> None:
        self.now_s = 100.0
        self.processor = OutputProcessor(TOKENIZER, clock=lambda: self.now_s, **arguments)

    def add(self, made: EngineCoreRequest) -> ListSink:
        sink = ListSink()
        self.children = self.processor.add_request(made, "prompt", sink)
        return sink

    def say(self, *outputs: EngineCoreOutput) -> list[str]:
        self.now_s += 1.0
        return self.processor.process(
            EngineCoreOutputs(outputs=list(outputs), timestamp_s=self.now_s)
        )

    def say_text(self, text: str, finish: FinishReason | None = None, **more: Any) -> list[str]:
        return self.say(EngineCoreOutput("r", tokens(text), finish, **more))


def test_deltas_join_to_the_whole() -> None:
    bench = Bench()
    sink = bench.add(request())
    for character in "abc":
        bench.say_text(character)
    bench.say_text("d", FinishReason.LENGTH)
    assert sink.text() == "abcd"
    assert sink.token_ids() == list(b"abcd")
    assert [o.outputs[0].finish_reason for o in sink.outputs] == [None, None, None, "length"]
    assert [o.finished for o in sink.outputs] == [False, False, False, True]
    assert sink.outputs[0].prompt == "prompt"
    assert sink.outputs[0].prompt_token_ids == [1, 2, 3]
    assert bench.processor.num_unfinished_requests == 0


def test_cumulative_outputs_hold_everything_so_far_and_do_not_change() -> None:
    bench = Bench()
    sink = bench.add(request(output_kind=CUMULATIVE))
    bench.say_text("a")
    bench.say_text("b", FinishReason.LENGTH)
    assert [(o.outputs[0].text, o.outputs[0].token_ids) for o in sink.outputs] == [
        ("a", tokens("a")),
        ("ab", [97, 98]),
    ]


def test_final_only_gives_one_output() -> None:
    bench = Bench()
    sink = bench.add(request(output_kind=FINAL_ONLY))
    bench.say_text("a")
    bench.say_text("c", FinishReason.LENGTH)
    (only,) = sink.outputs
    assert (only.outputs[0].text, only.outputs[0].token_ids) == ("ac", [97, 99])
    assert only.finished


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE, FINAL_ONLY])
def test_a_stop_string_ends_the_request_and_aborts_it_in_the_core(kind: RequestOutputKind) -> None:
    bench = Bench()
    sink = bench.add(request(stop=["DE"], output_kind=kind))
    assert bench.say_text("ABC") == []
    assert bench.say(EngineCoreOutput("r", [*tokens("DEF"), *tokens("GH")])) == ["r"]
    last = sink.outputs[-1]
    assert last.finished
    assert (last.outputs[0].finish_reason, last.outputs[0].stop_reason) == ("stop", "DE")
    text = sink.text() if kind is DELTA else last.outputs[0].text
    assert text == "ABC"
    ids = sink.token_ids() if kind is DELTA else last.outputs[0].token_ids
    assert ids == [*tokens("ABC"), *tokens("DEF")]
    assert bench.say_text("late") == []  # on its way while the abort was sent
    assert bench.processor.num_unfinished_requests == 0


def test_a_stop_string_in_the_last_tokens_needs_no_abort() -> None:
    bench = Bench()
    sink = bench.add(request(stop=["B"]))
    assert bench.say_text("AB", FinishReason.LENGTH) == []
    assert sink.outputs[-1].outputs[0].finish_reason == "stop"


def test_the_eos_token_is_a_token_without_text() -> None:
    bench = Bench()
    sink = bench.add(request())
    bench.say(EngineCoreOutput("r", [EOS], FinishReason.STOP))
    (only,) = sink.outputs
    assert (only.outputs[0].text, only.outputs[0].token_ids) == ("", [EOS])
    assert (only.outputs[0].finish_reason, only.outputs[0].stop_reason) == ("stop", None)


def test_a_stop_token_id_is_the_stop_reason() -> None:
    bench = Bench()
    sink = bench.add(request())
    bench.say_text("a", FinishReason.STOP, stop_reason=97)
    assert sink.outputs[-1].outputs[0].stop_reason == 97


def test_no_delta_comes_without_text_before_the_end() -> None:
    bench = Bench()
    sink = bench.add(request(stop=["zzzz"]))
    for token_id in [*"€".encode(), *tokens("zza")]:
        bench.say(EngineCoreOutput("r", [token_id]))
    assert [o.outputs[0].text for o in sink.outputs] == ["€", "zza"]
    assert sink.token_ids() == [*"€".encode(), *tokens("zza")]


def test_without_detokenizing_every_step_gives_tokens() -> None:
    bench = Bench()
    sink = bench.add(request(detokenize=False))
    bench.say_text("a")
    bench.say_text("b", FinishReason.LENGTH)
    assert [o.outputs[0].token_ids for o in sink.outputs] == [[97], [98]]
    assert sink.text() == ""


def test_the_stream_interval_joins_tokens_after_the_first() -> None:
    bench = Bench(stream_interval=3)
    sink = bench.add(request())
    for character in "abcdefg":
        bench.say(EngineCoreOutput("r", list(character.encode())))
    bench.say_text("h", FinishReason.LENGTH)
    assert [o.outputs[0].text for o in sink.outputs] == ["a", "bcd", "efg", "h"]


@pytest.mark.parametrize(
    ("server", "asked", "texts"), [(1, 3, 4), (3, None, 4), (3, 2, 4), (2, 9, 2)]
)
def test_a_request_may_raise_the_stream_interval(
    server: int, asked: int | None, texts: int
) -> None:
    bench = Bench(stream_interval=server)
    sink = bench.add(request(stream_interval=asked))
    for character in "abcdefg":
        bench.say(EngineCoreOutput("r", list(character.encode())))
    bench.say_text("h", FinishReason.LENGTH)
    assert len(sink.outputs) == texts
    assert sink.outputs[0].outputs[0].text == "a"
    assert sink.text() == "abcdefgh"


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE, FINAL_ONLY])
def test_flat_logprobs_hold_what_the_list_holds(kind: RequestOutputKind) -> None:
    results = []
    for is_flat in (False, True):
        bench = Bench()
        sink = bench.add(request(logprobs=1, output_kind=kind, flat_logprobs=is_flat))
        bench.say_text("a", logprobs=[TokenLogprobs([97, 98], [-0.5, -0.25], [2, 1])])
        bench.say_text(
            "b", FinishReason.LENGTH, logprobs=[TokenLogprobs([98, 97], [-0.1, -2.0], [1, 2])]
        )
        results.append([output.outputs[0].logprobs for output in sink.outputs])
    plain, flat = results
    assert plain == flat
    assert all(isinstance(each, FlatLogprobs) for each in flat)
    assert all(isinstance(each, list) for each in plain)


def test_a_repetition_is_a_reason_of_its_own() -> None:
    bench = Bench()
    sink = bench.add(request())
    bench.say_text("aa", FinishReason.REPETITION, stop_reason=REPETITION_DETECTED)
    last = sink.outputs[-1].outputs[0]
    assert (last.text, last.finish_reason) == ("aa", "repetition")
    assert last.stop_reason == "repetition_detected"


def test_logprobs_are_decoded_and_summed() -> None:
    bench = Bench()
    sink = bench.add(request(logprobs=2))
    first = TokenLogprobs([97, 98, 97], [-0.5, -0.25, -0.5], [2, 1, 2])
    second = TokenLogprobs([0xE2, 97], [float("-inf"), -1.0], [5, 1])
    bench.say_text("a", logprobs=[first])
    bench.say(EngineCoreOutput("r", [0xE2], FinishReason.LENGTH, logprobs=[second]))
    one, two = (o.outputs[0] for o in sink.outputs)
    assert one.logprobs is not None
    assert two.logprobs is not None
    assert [(i, p.logprob, p.rank, p.decoded_token) for i, p in one.logprobs[0].items()] == [
        (97, -0.5, 2, "a"),
        (98, -0.25, 1, "b"),
    ]
    assert two.logprobs[0][0xE2].logprob == -9999.0
    assert two.logprobs[0][0xE2].decoded_token == "\ufffd"
    assert one.cumulative_logprob == -0.5


def test_prompt_logprobs_come_once_in_a_stream() -> None:
    bench = Bench()
    sink = bench.add(request(prompt_logprobs=0))
    position = TokenLogprobs([2], [-1.0], [1])
    bench.say(EngineCoreOutput("r", [], prompt_logprobs=[None, position]))
    bench.say_text("a", prompt_logprobs=[position])
    bench.say_text("b", FinishReason.LENGTH)
    first, last = sink.outputs
    assert first.prompt_logprobs is not None
    assert first.prompt_logprobs[0] is None
    assert len(first.prompt_logprobs) == 3
    assert last.prompt_logprobs is None


def test_n_outputs_are_requests_of_their_own_with_their_own_seeds() -> None:
    bench = Bench()
    bench.add(request(n=3, seed=7, temperature=1.0))
    assert [c.request_id for c in bench.children] == ["0_r", "1_r", "2_r"]
    assert [c.sampling_params.seed for c in bench.children] == [7, 8, 9]
    assert all(c.sampling_params.n == 1 for c in bench.children)
    assert bench.processor.num_unfinished_requests == 3


def test_n_streams_interleave_and_end_one_by_one() -> None:
    bench = Bench()
    sink = bench.add(request(n=2))
    bench.say(EngineCoreOutput("0_r", [97]), EngineCoreOutput("1_r", [98]))
    bench.say(EngineCoreOutput("0_r", [99], FinishReason.LENGTH), EngineCoreOutput("1_r", [100]))
    assert not sink.outputs[-1].finished
    bench.say(EngineCoreOutput("1_r", [101], FinishReason.STOP, stop_reason=101))
    assert sink.outputs[-1].finished
    assert (sink.text(0), sink.text(1)) == ("ac", "bd")
    reasons = [c.finish_reason for o in sink.outputs for c in o.outputs if c.finish_reason]
    assert reasons == ["length", "stop"]
    assert bench.processor.num_unfinished_requests == 0


def test_n_whole_outputs_come_together_in_order() -> None:
    bench = Bench()
    sink = bench.add(request(n=2, output_kind=FINAL_ONLY))
    bench.say(EngineCoreOutput("1_r", [98], FinishReason.LENGTH))
    assert sink.outputs == []
    bench.say(EngineCoreOutput("0_r", [97], FinishReason.LENGTH))
    (only,) = sink.outputs
    assert [(c.index, c.text) for c in only.outputs] == [(0, "a"), (1, "b")]


def test_a_failed_output_ends_the_whole_request_and_no_other() -> None:
    bench = Bench()
    sink = bench.add(request(n=2))
    other = bench.add(request("s"))
    aborts = bench.say(
        EngineCoreOutput("0_r", [], FinishReason.ERROR, error="it broke"),
        EngineCoreOutput("s", [97], FinishReason.LENGTH),
    )
    assert isinstance(sink.error, GenerationFailed)
    assert sink.error.message == "it broke"
    assert "1_r" in aborts
    assert other.text() == "a"
    assert bench.processor.num_unfinished_requests == 0


def test_a_request_that_asked_for_the_impossible_gets_an_error_of_its_own_kind() -> None:
    bench = Bench()
    sink = bench.add(request())
    bench.say(EngineCoreOutput("r", [], FinishReason.ERROR, error="no way", is_request_error=True))
    assert isinstance(sink.error, InvalidParameter)
    assert sink.error.message == "no way"


def test_a_failure_while_decoding_ends_that_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    sink = bench.add(request())
    other = bench.add(request("s"))
    aborts = bench.say(EngineCoreOutput("r", [10**6]), EngineCoreOutput("s", [97]))
    assert isinstance(sink.error, GenerationFailed)
    assert aborts == ["r"]
    assert other.text() == "a"
    assert "Request r" in caplog.text


def test_abort_gives_the_caller_the_rest_and_the_core_the_ids() -> None:
    bench = Bench()
    sink = bench.add(request(n=2, stop=["abc"]))
    bench.say(EngineCoreOutput("0_r", [97]), EngineCoreOutput("1_r", [98], FinishReason.LENGTH))
    assert bench.processor.abort_request("r", is_consumer_there=True) == ["0_r"]
    assert sink.text(0) == "a"
    assert sink.outputs[-1].finished
    assert sink.outputs[-1].outputs[0].finish_reason == "abort"
    assert bench.processor.abort_request("r", is_consumer_there=True) == []


def test_abort_of_a_request_whose_caller_left_says_nothing() -> None:
    bench = Bench()
    sink = bench.add(request())
    assert bench.processor.abort_request("r", is_consumer_there=False) == ["r"]
    assert sink.outputs == []
    assert bench.processor.num_unfinished_requests == 0
    assert [f.finish_reason for f in bench.processor.take_stats().finished] == ["abort"]


def test_an_id_in_use_is_refused_and_free_again_after_the_end() -> None:
    bench = Bench()
    bench.add(request())
    with pytest.raises(InvalidParameter, match="'r' belongs to a request"):
        bench.add(request())
    bench.say_text("a", FinishReason.LENGTH)
    bench.add(request())


def test_fail_all_ends_every_request_with_the_error() -> None:
    bench = Bench()
    sinks = [bench.add(request()), bench.add(request("s", n=2))]
    bench.processor.fail_all(lambda: EngineDead("gone"))
    assert [type(s.error) for s in sinks] == [EngineDead, EngineDead]
    assert bench.processor.num_unfinished_requests == 0
    assert bench.processor.num_prefill_tokens == 0


def test_prefill_tokens_count_until_the_first_token() -> None:
    bench = Bench()
    bench.add(request(n=2))
    bench.add(request("s"))
    assert bench.processor.num_prefill_tokens == 9
    bench.say(EngineCoreOutput("0_r", [97]))
    assert bench.processor.num_prefill_tokens == 6
    bench.processor.abort_request("r", is_consumer_there=False)
    assert bench.processor.num_prefill_tokens == 3
    bench.say(EngineCoreOutput("s", [97], FinishReason.LENGTH))
    assert bench.processor.num_prefill_tokens == 0


def test_statistics_of_a_request() -> None:
    bench = Bench()
    sink = bench.add(request(max_tokens=3))  # arrives at 100
    bench.say_text("a", num_cached_tokens=2, events=RequestEvents(100.25, 100.5))  # at 101
    stats = bench.processor.take_stats()
    assert (stats.num_prompt_tokens, stats.num_cached_tokens) == (3, 2)
    assert stats.num_generation_tokens == 1
    assert stats.time_to_first_token_s == [1.0]
    assert stats.inter_token_latency_s == []
    bench.say_text("b")  # at 102
    assert bench.processor.take_stats().inter_token_latency_s == [1.0]
    bench.say_text("c", FinishReason.LENGTH, events=RequestEvents(100.25, 100.5, 1))  # at 103
    stats = bench.processor.take_stats()
    (done,) = stats.finished
    assert done.finish_reason == "length"
    assert (done.num_prompt_tokens, done.num_cached_tokens, done.num_generation_tokens) == (3, 2, 3)
    assert (done.max_tokens, done.num_preemptions) == (3, 1)
    assert done.e2e_s == 3.0
    assert (done.queue_s, done.prefill_s, done.decode_s) == (0.25, 0.5, 2.0)
    assert done.inference_s == 2.5
    assert done.time_per_output_token_s == 1.0
    assert stats.completed == [(1, 3)]
    assert sink.outputs[0].num_cached_tokens == 2
    times = sink.outputs[-1].metrics
    assert (times.queued_s, times.scheduled_s) == (100.25, 100.5)
    assert (times.first_token_s, times.last_token_s) == (101.0, 103.0)
    assert (times.arrival_time_s, times.num_generation_tokens) == (5.0, 3)


def test_the_prompt_of_n_outputs_counts_once() -> None:
    bench = Bench()
    bench.add(request(n=2))
    bench.say(
        EngineCoreOutput("0_r", [97], FinishReason.LENGTH),
        EngineCoreOutput("1_r", [98, 99], FinishReason.LENGTH),
    )
    stats = bench.processor.take_stats()
    assert stats.num_prompt_tokens == 3
    assert stats.num_generation_tokens == 3
    assert stats.completed == [(2, 2)]
    assert len(stats.finished) == 2


@given(
    st.lists(st.sampled_from([97, 98, 99, 0xE2, 0x82, 0xAC, EOS, *range(258, 264)]), max_size=20),
    st.lists(st.text("abc€", min_size=1, max_size=3), max_size=2),
    st.lists(st.integers(0, 99), max_size=6),
    st.integers(1, 4),
)
def test_a_stream_says_what_the_whole_says_however_steps_cut_it(
    ids: list[int], stops: list[str], cuts: list[int], stream_interval: int
) -> None:
    ids = [*ids, 97]
    edges = [0, *sorted({c % len(ids) for c in cuts} - {0}), len(ids)]
    steps = [ids[a:b] for a, b in itertools.pairwise(edges)]

    def play(bench: Bench, kind: RequestOutputKind, steps: list[list[int]]) -> ListSink:
        sink = bench.add(request(stop=stops, output_kind=kind))
        for number, step in enumerate(steps, 1):
            finish = FinishReason.LENGTH if number == len(steps) else None
            bench.say(EngineCoreOutput("r", step, finish))
        return sink

    whole = play(Bench(), FINAL_ONLY, [ids]).outputs[-1].outputs[0]
    streamed = play(Bench(stream_interval=stream_interval), DELTA, steps)
    last = streamed.outputs[-1].outputs[0]
    assert streamed.text() == whole.text
    assert streamed.token_ids() == whole.token_ids
    assert (last.finish_reason, last.stop_reason) == (whole.finish_reason, whole.stop_reason)
    assert sum(c.finish_reason is not None for o in streamed.outputs for c in o.outputs) == 1
    cumulative = play(Bench(), CUMULATIVE, steps).outputs[-1].outputs[0]
    assert (cumulative.text, cumulative.token_ids) == (whole.text, whole.token_ids)


def test_a_request_without_tokens_counts_its_prompt_and_ends() -> None:
    bench = Bench()
    sink = bench.add(request(max_tokens=0, prompt_logprobs=0, output_kind=FINAL_ONLY, n=2))
    one = TokenLogprobs([2], [-1.0], [1])
    bench.say(
        EngineCoreOutput("0_r", [], FinishReason.LENGTH, prompt_logprobs=[None, one, one]),
        EngineCoreOutput("1_r", [], FinishReason.LENGTH),
    )
    (output,) = sink.outputs
    assert [(o.text, o.token_ids, o.finish_reason) for o in output.outputs] == [
        ("", [], "length")
    ] * 2
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == 3
    stats = bench.processor.take_stats()
    assert (stats.num_prompt_tokens, stats.num_generation_tokens) == (3, 0)
    assert stats.time_to_first_token_s == []
    assert bench.processor.num_prefill_tokens == 0
