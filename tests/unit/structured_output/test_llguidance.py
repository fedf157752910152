"""The library through its C interface."""

from __future__ import annotations

import contextlib
import ctypes
import json
import threading
import time
from typing import Any

import numpy as np
import pytest

from octavo.errors import EngineError
from octavo.messages.grammar import Grammar, Vocabulary
from octavo.structured_output import llguidance
from octavo.structured_output.backend import GrammarError
from octavo.structured_output.grammar_text import MAX_CHARACTERS
from octavo.structured_output.json_schema import prepare_schema
from octavo.structured_output.llguidance import LlguidanceBackend, library_version
from octavo.structured_output.vocabulary import byte_vocabulary
from tests.fakes.grammar_match import END, byte_backend, matches

NUM_WORDS = -(-258 // 32)


def schema(value: Any) -> Grammar:
    options = {"allows_whitespace": True, "whitespace_pattern": None, "is_closed": False}
    return Grammar("json", json.dumps(prepare_schema(value, **options)))


def allowed(grammar: Grammar, text: bytes) -> set[int]:
    """Ids that may follow `text`."""
    matcher = byte_backend().compile(grammar).start()
    for byte in text:
        matcher.accept(byte)
    mask = np.zeros(NUM_WORDS, np.uint32)
    matcher.fill_mask(mask.ctypes.data, mask.nbytes)
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def test_the_library_is_the_version_whose_structures_are_described() -> None:
    assert library_version().startswith("llguidance@1.9.")


def test_masks_have_the_ids_that_may_follow_and_the_end_where_the_output_may_end() -> None:
    grammar = Grammar("regex", "ab?")
    assert allowed(grammar, b"") == {ord("a")}
    assert allowed(grammar, b"a") == {ord("b"), END}


@pytest.mark.parametrize(
    ("value", "text", "is_right"),
    [
        ({"type": "object"}, '{"a": [1, null]}', True),
        ({"type": "object"}, "[]", False),
        # C25: bounds beyond 32 bits
        ({"type": "integer", "minimum": 0, "maximum": 20000000000}, "20000000000", True),
        ({"type": "integer", "minimum": 0, "maximum": 20000000000}, "20000000001", False),
        ({"type": "integer", "minimum": 0, "maximum": 20000000000}, "-1", False),
        ({"const": 10**30}, "1" + "0" * 30, True),
        ({"type": "object"}, '{        "a":1}', True),
        ({"type": "object"}, '{         "a":1}', False),  # C28: more than 8
        ({"type": "object"}, ' {"a":1}', False),
    ],
)
def test_texts_of_schemas(value: Any, text: str, is_right: bool) -> None:
    assert matches(schema(value), text) is is_right


def test_an_object_is_complete_with_its_last_brace() -> None:
    matcher = byte_backend().compile(schema({"type": "object"})).start()
    for byte in b'{"a": {}':
        matcher.accept(byte)
        assert not matcher.is_complete
    matcher.accept(ord("}"))
    assert matcher.is_complete


def test_outputs_of_one_grammar_do_not_disturb_each_other() -> None:
    compiled = byte_backend().compile(Grammar("regex", "ab"))
    first, second = compiled.start(), compiled.start()
    first.accept(ord("a"))
    second.accept(ord("a"))
    first.accept(ord("b"))
    assert first.is_complete
    assert not second.is_complete


def test_a_token_that_is_not_allowed_is_an_error() -> None:
    matcher = byte_backend().compile(Grammar("regex", "a")).start()
    with pytest.raises(GrammarError, match="doesn't satisfy the grammar"):
        matcher.accept(ord("b"))


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (Grammar("regex", "("), "unclosed group"),
        (Grammar("regex", "(?=a)"), "look-around"),
        (Grammar("lark", "start: missing"), "missing"),
        (Grammar("json", "[1]"), "schema must be an object"),
        (Grammar("json", "{"), "EOF"),
        (Grammar("json", '{"pattern": "("}'), "unclosed group"),
        (Grammar("music", "a"), "unknown constraint type"),
    ],
)
def test_mistakes_are_said_on_one_line_when_checked_and_when_compiled(
    grammar: Grammar, words: str
) -> None:
    for look in (byte_backend().check, byte_backend().compile):
        with pytest.raises(GrammarError, match=words) as caught:
            look(grammar)
        assert "\n" not in str(caught.value)


def test_several_tokens_may_end_an_output() -> None:
    vocabulary = byte_vocabulary(["<stop>"])
    both = Vocabulary(vocabulary.token_lens, vocabulary.token_bytes, [256, 257])
    matcher = LlguidanceBackend(both).compile(Grammar("regex", "a?")).start()
    mask = np.zeros(NUM_WORDS, np.uint32)
    matcher.fill_mask(mask.ctypes.data, mask.nbytes)
    assert np.unpackbits(mask.view(np.uint8), bitorder="little").nonzero()[0].tolist() == [
        97,
        256,
        257,
    ]


def test_tokens_that_are_no_text_are_not_allowed_as_text() -> None:
    assert END + 1 not in allowed(Grammar("regex", ".*"), b"<")
    assert END + 1 in allowed(Grammar("lark", "start: <|tool|>"), b"")


def nested_one_of(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        branches = [
            {"type": "object", "properties": {"k": {"const": kind}, kind: value}, "required": ["k"]}
            for kind in "ab"
        ]
        value = {"oneOf": branches}
    return value


HOSTILE = {
    "products": {
        "allOf": [
            {"anyOf": [{"properties": {f"p{i}_{j}": {}}} for j in range(9)]} for i in range(9)
        ]
    },
    "c31 one_of": nested_one_of(12),
    "counts": {"type": "string", "pattern": "^((a{1,1000}b{1,1000}){1,100}c){1,100}$"},
    "many properties": {"properties": {f"p{i}": {"type": ["string", "null"]} for i in range(2000)}},
    "long array": {"minItems": 10**6, "maxItems": 10**9},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_are_compiled_or_refused_within_seconds(name: str) -> None:
    """By the library's own limits: nobody can be left with a thread that computes for ever."""
    start_s = time.thread_time()
    try:
        byte_backend().compile(schema(HOSTILE[name]))
    except GrammarError as error:
        assert str(error)  # noqa: PT017  either is right
    assert time.thread_time() - start_s < 3


def chain(level: str, num: int) -> str:
    """A text of many levels: `{0}` is the number of one, `{1}` that of the next."""
    return "".join(level.format(index, index + 1) for index in range(num))


DEEP = {
    "rules": Grammar("lark", "start: r0\n" + chain("r{}:r{}\n", 14_000) + "r14000: /a/"),
    "terminals": Grammar("lark", "start: R0\n" + chain("R{}:R{}\n", 14_000) + "R14000: /a/"),
    "references": Grammar(
        "json",
        '{"$defs":{'
        + chain('"{}":{{"properties":{{"":{{"$ref":"#/$defs/{}"}}}}}},', 4500)
        + '"4500":{}},"$ref":"#/$defs/0"}',
    ),
    "schemas through references": Grammar(
        "json",
        '{"$defs":{'
        + chain('"{}":' + '{{"items":' * 60 + '{{"$ref":"#/$defs/{}"}}' + "}}" * 60 + ",", 350)
        + '"350":{}},"$ref":"#/$defs/0"}',
    ),
}


@pytest.mark.parametrize("name", DEEP)
def test_grammars_as_deep_as_their_text_allows_do_not_end_the_process(name: str) -> None:
    """Where the library's stack ends, the process does."""
    grammar, backend = DEEP[name], byte_backend()
    assert 100_000 < len(grammar.text) <= MAX_CHARACTERS
    for call in (backend.check, backend.compile):
        with contextlib.suppress(GrammarError):  # it may be too large, too
            call(grammar)


def test_other_threads_run_while_a_grammar_is_compiled() -> None:
    """The interpreter's lock is not held: a thread of pure Python makes progress meanwhile."""
    slow = schema(HOSTILE["many properties"])
    seen: list[float] = []
    begun, done = threading.Event(), threading.Event()

    def count() -> None:
        begun.wait()
        while not done.is_set():
            seen.append(time.perf_counter())

    counter = threading.Thread(target=count)
    counter.start()
    begun.set()
    byte_backend().compile(slow)
    done.set()
    counter.join()
    assert len(seen) > 100


def test_a_library_without_the_interface_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(llguidance._FUNCTIONS, "llg_no_such", (None, ()))
    with pytest.raises(EngineError, match="has no C function llg_no_such"):
        llguidance._library.__wrapped__()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineError, match="not installed: run pip install"):
        llguidance._library.__wrapped__()


def test_a_queue_makes_the_masks_of_outputs_while_others_move() -> None:
    """Outputs of one grammar share nothing that changes: what a thread makes of one does not depend
    on what happens to the others meanwhile."""
    grammar = schema({"type": "array", "items": {"type": "string", "maxLength": 9}})
    compiled = byte_backend().compile(grammar)
    text = json.dumps(["Ein Satz", 'mit "', "Zeichen", "und mehr", "x" * 9]).encode()
    expected = [sorted(allowed(grammar, text[:place])) for place in range(len(text))]
    queue = byte_backend().mask_queue()
    outputs = [compiled.start() for _ in range(8)]
    masks = np.zeros((8, NUM_WORDS), np.uint32)
    rows = [queue.row(output, mask) for output, mask in zip(outputs, masks, strict=True)]
    for place, byte in enumerate(text):
        queue.add(rows[:4])
        for output in outputs[4:] if place else ():  # while the masks of the others are made
            output.accept(text[place - 1])
        queue.wait()
        queue.add(rows[4:])
        for output in outputs[:4]:
            output.accept(byte)
        queue.wait()
        for row, mask in zip(rows, masks, strict=True):
            row.raise_error()
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
            assert np.flatnonzero(bits).tolist() == expected[place]
    queue.close()


def test_a_mask_that_fails_says_why() -> None:
    matcher = byte_backend().compile(Grammar("regex", "ab")).start()
    with contextlib.suppress(GrammarError):
        matcher.accept(ord("x"))  # it cannot be used any more
    queue = byte_backend().mask_queue()
    row = queue.row(matcher, np.zeros(NUM_WORDS, np.uint32))
    queue.add([row])
    queue.wait()
    with pytest.raises(GrammarError):
        row.raise_error()
    queue.close()


def test_what_a_grammar_learns_changes_nothing_but_the_time() -> None:
    grammar = schema({"type": "array", "items": {"type": "string", "maxLength": 9}})
    text = json.dumps(["Ein Satz", 'mit "', "Zeichen"]).encode()
    expected = [sorted(allowed(grammar, text[:place])) for place in range(len(text))]
    compiled = byte_backend().compile(grammar)
    ended, failed = compiled.start(), compiled.start()
    with pytest.raises(GrammarError):
        failed.accept(ord("x"))
    compiled.learn(failed)
    for byte in text:
        ended.accept(byte)
    compiled.learn(ended)
    assert compiled.start().handle != ended.handle
    for _ in range(2):
        output = compiled.start()
        for byte, ids in zip(text, expected, strict=True):
            mask = np.zeros(NUM_WORDS, np.uint32)
            output.fill_mask(mask.ctypes.data, mask.nbytes)
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
            assert np.flatnonzero(bits).tolist() == ids
            output.accept(byte)


def test_a_token_is_allowed_alone_if_it_is_in_the_mask() -> None:
    """What the sampler asks first and what it asks for then agree, in every state of an output."""
    backend = byte_backend()
    grammar = schema({"type": "array", "items": {"type": "string", "maxLength": 4}})
    allows_address, fill_address = backend.matcher_calls
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    allows = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, size)(allows_address)
    fill = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, size)(fill_address)
    output = backend.compile(grammar).start()
    for byte in b'["abcd", "x\\n"]':
        mask = np.zeros(NUM_WORDS, np.uint32)
        assert fill(output.handle, mask.ctypes.data, mask.nbytes) == 0
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        for token in range(258):
            asked = np.array([token], np.uint32)
            assert allows(output.handle, asked.ctypes.data, 1) == bits[token]
        output.accept(byte)
