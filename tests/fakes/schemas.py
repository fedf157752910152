"""Random JSON schemas over every supported keyword, and random outputs that a grammar allows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from octavo.messages.grammar import Vocabulary
from octavo.structured_output.backend import CompiledGrammar
from octavo.structured_output.number_guard import DigitTokens, NumberGuard
from octavo.structured_output.token_texts import TokenTexts

Schema = dict[str, Any]
PATTERNS = [
    "^[a-z]{2,5}$",
    "^A",
    "^.{0,6}[0-9]{1,3}$",
    "^(on|off)$",
    "^[A-Z][a-z]*-[0-9]{3}$",
    "^x.{0,8}y$",
]
FORMATS = [
    "date",
    "time",
    "date-time",
    "email",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "hostname",
    "duration",
]
VALUES = [
    None,
    True,
    False,
    0,
    -7,
    3.5,
    12345678901,
    "",
    "two words",
    'a "b"',
    "\u00e9",
    [1, "x"],
    {"k": []},
]


class SchemaMaker:
    """Makes schemas from a seed. `used` are the keywords it has used."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.used: set[str] = set()

    def make(self) -> Schema:
        """A schema whose root is an object."""
        self._names = ["leaf", "tree"]
        root = self._object(3)
        root["$defs"] = {
            "leaf": self._scalar(),
            "tree": {
                "type": "object",
                "properties": {"value": {"$ref": "#/$defs/leaf"}, "next": {"$ref": "#/$defs/tree"}},
                "required": ["value"],
                "additionalProperties": False,
            },
        }
        self._note(root)
        return root

    def _note(self, schema: Any) -> None:
        if isinstance(schema, dict):
            self.used |= set(schema)
            for value in schema.values():
                self._note(value)
        elif isinstance(schema, list):
            for value in schema:
                self._note(value)

    def _any(self, depth: int) -> Schema:
        kinds: list[Callable[[int], Schema]] = [lambda d: self._scalar()] * 4
        if depth > 0:
            kinds += [self._object, self._array, self._any_of, self._one_of, self._all_of]
            kinds += [
                lambda d: {},
                lambda d: {"$ref": f"#/$defs/{self._random.choice(self._names)}"},
            ]
        schema = self._random.choice(kinds)(depth - 1)
        if self._random.random() < 0.2:
            schema = {**schema, "title": "T", "description": "d", "default": None}
        return schema

    def _scalar(self) -> Schema:
        make = self._random.choice(
            [self._string, self._string, self._integer, self._number, self._constant, self._plain]
        )
        return make()

    def _plain(self) -> Schema:
        names = ["null", "boolean", "integer", "string", "number"]
        if self._random.random() < 0.3:
            return {"type": self._random.sample(names, 2)}
        return {"type": self._random.choice(names)}

    def _constant(self) -> Schema:
        if self._random.random() < 0.5:
            return {"const": self._random.choice(VALUES)}
        return {"enum": self._random.sample(VALUES, self._random.randint(1, 5))}

    def _string(self) -> Schema:
        chance, schema = self._random.random(), {"type": "string"}
        if chance < 0.3:
            low = self._random.randint(0, 6)
            return {**schema, "minLength": low, "maxLength": low + self._random.randint(0, 20)}
        if chance < 0.6:
            return {**schema, "pattern": self._random.choice(PATTERNS)}
        if chance < 0.8:
            return {**schema, "format": self._random.choice(FORMATS)}
        return schema

    def _integer(self) -> Schema:
        schema: Schema = {"type": "integer"}
        low = self._random.randint(-(10**11), 10**11)
        if self._random.random() < 0.6:
            schema[self._random.choice(["minimum", "exclusiveMinimum"])] = low
        if self._random.random() < 0.6:
            schema[self._random.choice(["maximum", "exclusiveMaximum"])] = low + 10**6
        if self._random.random() < 0.3:
            schema["multipleOf"] = self._random.randint(2, 9)
        return schema

    def _number(self) -> Schema:
        schema: Schema = {"type": "number"}
        low = self._random.randint(-1000, 1000) / 4
        if self._random.random() < 0.6:
            schema[self._random.choice(["minimum", "exclusiveMinimum"])] = low
        if self._random.random() < 0.6:
            schema[self._random.choice(["maximum", "exclusiveMaximum"])] = low + 100.5
        return schema

    def _object(self, depth: int) -> Schema:
        names = self._random.sample(["a", "b", "c d", "e/f", "g\u00e9"], self._random.randint(0, 4))
        schema: Schema = {"type": "object", "properties": {n: self._any(depth) for n in names}}
        schema["required"] = [name for name in names if self._random.random() < 0.6]
        chance = self._random.random()
        if chance < 0.4:
            schema["additionalProperties"] = False
        elif chance < 0.6:
            schema["additionalProperties"] = self._scalar()
        elif chance < 0.75:
            schema["patternProperties"] = {"^x_": self._scalar(), "^[0-9]+$": self._scalar()}
        elif not names:
            schema[self._random.choice(["minProperties", "maxProperties"])] = 1
        return schema

    def _array(self, depth: int) -> Schema:
        schema: Schema = {"type": "array"}
        if self._random.random() < 0.3:
            schema["prefixItems"] = [self._any(depth) for _ in range(self._random.randint(1, 2))]
            schema["items"] = self._random.choice([False, self._scalar()])
        else:
            schema["items"] = self._any(depth)
            low = self._random.randint(0, 2)
            if self._random.random() < 0.5:
                schema["minItems"] = low
            if self._random.random() < 0.7:
                schema["maxItems"] = low + self._random.randint(0, 3)
        return schema

    def _any_of(self, depth: int) -> Schema:
        return {"anyOf": [self._any(depth) for _ in range(self._random.randint(1, 3))]}

    def _one_of(self, depth: int) -> Schema:
        if self._random.random() < 0.5:
            return {
                "oneOf": [{"type": "string", "maxLength": 5}, {"type": "null"}, self._integer()]
            }
        return {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": kind}, "value": self._any(depth)},
                    "required": ["kind", "value"],
                    "additionalProperties": False,
                }
                for kind in ("cat", "dog")
            ]
        }

    def _all_of(self, depth: int) -> Schema:
        parts = [
            {"type": "object", "properties": {name: self._any(depth)}, "required": [name]}
            for name in ("base", "more")
        ]
        return {"allOf": parts}


class RandomOutputs:
    """Draws outputs token by token from what a grammar allows, as a model without sense would.

    Args:
        vocabulary: of the grammars.
        seed: decides everything.
    """

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._tokens = DigitTokens(TokenTexts(vocabulary))
        self._eos = set(vocabulary.eos_token_ids)
        self._num_words = -(-vocabulary.vocab_size // 32)
        self._first_bytes = np.array(
            [(self._tokens.bytes_of(i) or b"\0")[0] for i in range(vocabulary.vocab_size)]
        )
        # an output comes to its end if what closes is preferred after a while
        self._closing = np.array(
            [
                (set(self._tokens.bytes_of(i)) <= set(b'"]}') and self._tokens.bytes_of(i) != b"")
                or i in self._eos
                for i in range(vocabulary.vocab_size)
            ]
        )

    def draw(self, grammar: CompiledGrammar, *, max_tokens: int = 500) -> str | None:
        """One output; None if it has no end within `max_tokens`."""
        matcher, guard, text = grammar.start(), NumberGuard(self._tokens), b""
        mask = np.zeros(self._num_words, np.uint32)
        for number in range(max_tokens):
            matcher.fill_mask(mask.ctypes.data, mask.nbytes)
            guard.narrow(mask)
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            assert len(allowed), text
            closing = allowed[self._closing[allowed]]
            if len(closing) and self._random.random() < (0.1 if number < 20 else 0.9):
                allowed = closing
            # by first bytes, so that a rare one that leads to an end has its chance
            byte = self._random.choice(np.unique(self._first_bytes[allowed]))
            allowed = allowed[self._first_bytes[allowed] == byte]
            token = int(self._random.choice(allowed))
            if token in self._eos:
                return text.decode()
            text += self._tokens.bytes_of(token)
            matcher.accept(token)
            guard.accept(token)
            if matcher.is_complete:
                return text.decode()
        return None
