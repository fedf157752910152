"""Log-likelihoods of continuations as lm-evaluation-harness asks for them, against transformers.

Requests and parsing are those of its `local-completions` model (`lm_eval/models/api_models.py`,
`openai_completions.py`): a pair becomes token ids, the answer echoes the prompt with log-
probabilities and one more token, and the continuation's are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from benchmarks.fidelity.corpus import TEXT_PATH
from benchmarks.fidelity.routes import Route, open_llm
from octavo import SamplingParams
from tests.conformance.gguf_reference import llama_from_gguf
from tests.conformance.tokenizer_reference import reference_tokenizer
from tests.integration.server import Server, serving

#: on the sum over a continuation. Of a hundred equal tokens it cannot be held by anyone: rounding
#: errors are equal, too, and add up (" b c" a hundred times: transformers' own fp32 is 2e-3 from
#: its fp64)
BOUND = 1e-3
WINDOW = 2048
BATCH = 8  # prompts per HTTP request

CAPITAL = "Question: What is the capital of France?\nAnswer:"
SORTED = (
    "def is_sorted(xs):\n    return all(a <= b for a, b in zip(xs, xs[1:]))\n\nprint(is_sorted("
)
STORY = "The old man locked the door of the shop, put the key in his pocket and"
CHAT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
TEXT = TEXT_PATH.read_text()

PAIRS = [
    *((CAPITAL, answer) for answer in (" Paris", " London", " Lyon", " paris", "Paris", " Paris.")),
    *((SORTED, answer) for answer in ("[1, 2, 3]))", "[0]))", "'abc'))", "[3, 1])) # False")),
    *((STORY, end) for end in (" went home.", " flew to the moon.", " the the the", "\n\n")),
    # where the space is: at the end of the context it belongs to the continuation
    ("The sky is ", "blue"),
    ("The sky is", " blue"),
    ("The sky is  ", "  blue"),
    ("The sky is\n", "blue\n"),
    ("1 + 1 =", " 2"),
    ("1 + 1 = ", "2"),
    ("Total: 12", "345"),  # the boundary lies inside a number
    ("The un", "believably tall tower"),  # and inside a word
    ("\tindented\n\t", "\tmore"),
    # beyond ASCII: characters of several tokens, on both sides of the boundary
    ("Le caf\u00e9 est", " tr\u00e8s bon"),
    ("\u65e5\u672c\u8a9e\u306e", "\u6587\u7ae0"),
    ("\u0420\u043e\u0441\u0441\u0438\u044f \u2014", " \u0441\u0442\u0440\u0430\u043d\u0430"),
    ("thumbs up: ", "\U0001f44d\U0001f3fd"),
    ("\U0001f468\u200d\U0001f469\u200d\U0001f467", " family"),
    ("e\u0301 is", " \u00e9"),
    ("\u0645\u0631\u062d\u0628\u0627", " \u0628\u0643"),
    # control tokens, spelled out
    (CHAT, "Hello! How can I help you today?"),
    (CHAT, "<|im_end|>"),
    # no context
    ("", "The"),
    ("", "Once upon a time there was a little girl"),
    ("", " \n"),
    # long
    (TEXT[:1000], TEXT[1000:1080]),
    (TEXT[:4300], TEXT[4300:4340]),
    ("a " * 150, "a"),
    ("x", " y" * 8),
    ("Repeat after me: red green blue red green blue red", " green"),
    ("Repeat after me: one two three one two three one two three one two", " three"),
]


@dataclass(frozen=True)
class Pair:
    """A pair as tokens, and what transformers says of it."""

    context: list[int]
    continuation: list[int]
    expected: float
    is_greedy: bool

    @property
    def ids(self) -> list[int]:
        return self.context + self.continuation


def encoded(tokenizer: Any, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """As lm-eval's `_encode_pair`: spaces move over; the context has its own tokens, also where
    those of the whole text reach over the boundary."""
    if not context:
        ids = tokenizer(continuation, add_special_tokens=False)["input_ids"]
        return [tokenizer.bos_token_id], ids
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, continuation = context[:-spaces], context[-spaces:] + continuation
    whole = tokenizer(context + continuation, add_special_tokens=False)["input_ids"]
    own = tokenizer(context, add_special_tokens=False)["input_ids"]
    return own, whole[len(own) :]


@pytest.fixture(scope="module")
def pairs(default_model: str) -> list[Pair]:
    tokenizer, model = reference_tokenizer(default_model), llama_from_gguf(default_model)
    found = []
    for context_text, continuation_text in PAIRS:
        context, continuation = encoded(tokenizer, context_text, continuation_text)
        assert context
        assert continuation
        rows = slice(len(context) - 1, -1)  # those that predict the continuation
        with torch.inference_mode():
            hidden = model.model(torch.tensor([context + continuation])).last_hidden_state
            logprobs = torch.log_softmax(model.lm_head(hidden[0, rows]), dim=-1)
        ids = torch.tensor(continuation)
        chosen = logprobs.gather(1, ids[:, None])[:, 0]
        found.append(
            Pair(
                context,
                continuation,
                float(chosen.double().sum()),
                bool((chosen == logprobs.max(dim=-1).values).all()),
            )
        )
    assert len(found) >= 40
    assert {pair.is_greedy for pair in found} == {False, True}
    assert 1 in {len(pair.continuation) for pair in found}
    assert max(len(pair.ids) for pair in found) > 1024
    return found


def check(pairs: Sequence[Pair], results: Sequence[tuple[float, bool]]) -> None:
    assert len(results) == len(pairs)
    differences = [
        abs(logprob - pair.expected) for pair, (logprob, _) in zip(pairs, results, strict=True)
    ]
    print(f"largest difference {max(differences):.2e} (bound {BOUND:.0e}), {len(pairs)} pairs")
    assert max(differences) <= BOUND
    assert [is_greedy for _, is_greedy in results] == [pair.is_greedy for pair in pairs]


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_llm_gives_transformers_loglikelihoods(
    pairs: list[Pair], default_model: str, backend: str
) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1)
    with open_llm(default_model, Route(backend, "float32"), max_model_len=WINDOW) as llm:
        outputs = llm.generate([pair.ids for pair in pairs], params)
    results = []
    for pair, output in zip(pairs, outputs, strict=True):
        assert output.prompt_logprobs is not None
        entries = output.prompt_logprobs[len(pair.context) :]
        chosen = [
            entry[token_id]
            for token_id, entry in zip(pair.continuation, entries, strict=True)
            if entry is not None
        ]
        assert len(chosen) == len(pair.continuation)
        results.append((sum(one.logprob for one in chosen), all(one.rank == 1 for one in chosen)))
    check(pairs, results)


# ---- over HTTP


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, default_model: str) -> Any:
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(
        log, "--dtype", "float32", "--max-model-len", f"{WINDOW}", model=default_model
    ) as running:
        yield running


def ask(server: Server, prompts: Sequence[list[int] | str], **fields: object) -> list[Any]:
    """The choices of one request of `local-completions`, in order of the prompts."""
    body = {
        "prompt": prompts,
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }
    status, answer = server.post("/v1/completions", {**body, **fields})
    assert status == 200, answer
    return sorted(answer["choices"], key=lambda choice: int(choice["index"]))


def parsed(choice: Any, num_context: int) -> tuple[float, bool]:
    """As `LocalCompletionsAPI.parse_logprobs`: the last token is the generated one."""
    logprobs = choice["logprobs"]["token_logprobs"][num_context:-1]
    tops = choice["logprobs"]["top_logprobs"][num_context:-1]
    is_greedy = all(own == max(top.values()) for own, top in zip(logprobs, tops, strict=True))
    return sum(logprobs), is_greedy


@pytest.mark.parametrize("form", ["token ids", "text"])
def test_completions_give_transformers_loglikelihoods(
    pairs: list[Pair], server: Server, default_model: str, form: str
) -> None:
    prompts: list[list[int] | str] = [pair.ids for pair in pairs]
    if form == "text":  # `tokenized_requests=False`; the long ones bring nothing new here
        pairs = [pair for pair in pairs if len(pair.ids) < 200]
        tokenizer = reference_tokenizer(default_model)
        prompts = [tokenizer.decode(pair.ids) for pair in pairs]
    results = []
    for first in range(0, len(pairs), BATCH):
        batch = slice(first, first + BATCH)
        choices = ask(server, prompts[batch])
        results += [
            parsed(choice, len(pair.context))
            for choice, pair in zip(choices, pairs[batch], strict=True)
        ]
    check(pairs, results)


def test_without_a_generated_token_the_echo_is_the_same(pairs: list[Pair], server: Server) -> None:
    prompts = [pair.ids for pair in pairs[:BATCH]]
    with_token, without = ask(server, prompts), ask(server, prompts, max_tokens=0)
    for pair, longer, shorter in zip(pairs[:BATCH], with_token, without, strict=True):
        assert len(shorter["logprobs"]["token_logprobs"]) == len(pair.ids)
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert shorter["logprobs"][name] == longer["logprobs"][name][:-1]
