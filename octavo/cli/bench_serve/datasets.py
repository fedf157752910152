"""The prompts of a benchmark: random ones, and those of files.

Prompts of `random` are vLLM's for the same seed and tokenizer: runs of consecutive allowed ids from
a random place, decoded and encoded again until they have the length asked for.

Runs in: the shell's process. Knows nothing of: servers.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.cli.bench_serve.requests import Sample
from octavo.errors import ConfigError
from octavo.tokenizer.tokenizer import Tokenizer

_MAX_ATTEMPTS = 10
#: sharegpt: what is too short or too long to be a useful sample, in tokens
_MIN_LEN, _MAX_PROMPT_LEN, _MAX_TOTAL_LEN = 4, 1024, 2048

#: renders one user message as the model's chat template would
Render = Callable[[str], str]


def load_samples(
    options: argparse.Namespace, tokenizer: Tokenizer | None, render: Render | None
) -> list[Sample]:
    """The samples that the flags ask for.

    Args:
        options: of the command line.
        tokenizer: None with `--skip-tokenizer-init`.
        render: used for the data sets `custom` and `spec_bench`; None: prompts are sent as they
            are.

    Raises:
        ConfigError: a file is missing or holds something else; a length is out of range.
    """
    name = options.dataset_name
    if name in ("random", "prefix_repetition"):
        if options.dataset_path is not None:
            raise ConfigError(
                f"--dataset-path {options.dataset_path} is not used by --dataset-name {name}; "
                "name the data set of the file"
            )
        samples = _GENERATED[name](options, _needed(tokenizer, name))
    else:
        if options.dataset_path is None:
            raise ConfigError(f"--dataset-name {name} needs --dataset-path")
        found = _FROM_FILE[name](options, tokenizer, render)
        samples = _as_many(found, options)
    prefix = options.request_id_prefix
    return [
        msgspec.structs.replace(sample, request_id=f"{prefix}{index}")
        for index, sample in enumerate(samples)
    ]


def _needed(tokenizer: Tokenizer | None, name: str) -> Tokenizer:
    if tokenizer is None:
        raise ConfigError(f"--dataset-name {name} needs a tokenizer; give --tokenizer")
    return tokenizer


# generated


def _random(options: argparse.Namespace, tokenizer: Tokenizer) -> list[Sample]:
    draw = np.random.default_rng(options.seed)
    num_special = len(tokenizer.encode(""))
    input_ratio, output_ratio = options.random_range_ratio
    inner = max(0, options.random_input_len - num_special)
    lowest = math.floor(inner * (1 - input_ratio))
    if lowest + options.random_prefix_len < 1:
        raise ConfigError(
            f"--random-input-len {options.random_input_len} leaves prompts without a token "
            f"({num_special} are the tokenizer's own); give more"
        )
    count = options.num_prompts
    input_lens = draw.integers(lowest, math.ceil(inner * (1 + input_ratio)) + 1, size=count)
    output_len = options.random_output_len
    output_lens = draw.integers(
        max(math.floor(output_len * (1 - output_ratio)), 1),
        max(math.ceil(output_len * (1 + output_ratio)), 1) + 1,
        size=count,
    )
    offsets = draw.integers(0, tokenizer.base_vocab_size, size=count)
    allowed = np.setdiff1d(np.arange(tokenizer.base_vocab_size), _named_ids(tokenizer))
    prefix: list[int] = []
    if options.random_prefix_len > 0:
        drawn = allowed[draw.integers(0, len(allowed), size=options.random_prefix_len)].tolist()
        _, prefix = _of_length(tokenizer, drawn, options.random_prefix_len, draw)
    samples = []
    for index in range(count):
        length = int(input_lens[index])
        places = (int(offsets[index]) + index + np.arange(length)) % len(allowed)
        ids = [*prefix, *allowed[places].tolist()]
        text, ids = _of_length(tokenizer, ids, options.random_prefix_len + length, draw)
        samples.append(Sample(text, len(ids), int(output_lens[index])))
    return samples


def _prefix_repetition(options: argparse.Namespace, tokenizer: Tokenizer) -> list[Sample]:
    num_prefixes = options.prefix_repetition_num_prefixes
    per_prefix = options.num_prompts // max(num_prefixes, 1)
    if per_prefix < 1 or num_prefixes < 1:
        raise ConfigError(
            f"--prefix-repetition-num-prefixes must be between 1 and --num-prompts "
            f"({options.num_prompts}), got {num_prefixes}"
        )
    draw = np.random.default_rng(options.seed)

    def ids_of_length(length: int) -> list[int]:
        drawn = draw.integers(0, tokenizer.base_vocab_size, size=length).tolist()
        return _of_length(tokenizer, drawn, length, draw)[1]

    samples = []
    for _ in range(num_prefixes):
        prefix = ids_of_length(options.prefix_repetition_prefix_len)
        for _ in range(per_prefix):
            ids = [*prefix, *ids_of_length(options.prefix_repetition_suffix_len)]
            text = tokenizer.decode(ids, skip_special_tokens=False)
            samples.append(Sample(text, len(ids), options.prefix_repetition_output_len))
    if not options.disable_shuffle:
        random.Random(options.seed).shuffle(samples)
    return samples


def _named_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids of the tokens with a role (BOS, EOS, ...), which random prompts do not hold."""
    ids = (tokenizer.token_to_id(token) for token in tokenizer.special_tokens.values())
    return [token_id for token_id in ids if token_id is not None]


def _of_length(
    tokenizer: Tokenizer, ids: list[int], length: int, draw: np.random.Generator
) -> tuple[str, list[int]]:
    """A text of about these ids that is encoded to `length` tokens, and its ids; the length may be
    missed where no text has it."""
    for attempt in range(_MAX_ATTEMPTS + 1):
        text = tokenizer.decode(ids, skip_special_tokens=False)
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) == length or attempt == _MAX_ATTEMPTS:
            break
        if len(ids) > length:
            ids = ids[:length]
        else:
            more: npt.NDArray[np.int64] = draw.integers(
                0, tokenizer.base_vocab_size, size=length - len(ids)
            )
            ids = [*ids, *more.tolist()]
    return text, ids


# from files


def _sharegpt(
    options: argparse.Namespace, tokenizer: Tokenizer | None, render: Render | None
) -> list[Sample]:
    tokenizer = _needed(tokenizer, "sharegpt")
    path = options.dataset_path
    entries = _read(path, lambda text: list(json.loads(text)), "a JSON list of conversations")
    try:
        pairs = [
            (turns[0]["value"], turns[1]["value"])
            for turns in (entry.get("conversations") or [] for entry in entries)
            if len(turns) >= 2
        ]
        _shuffle(pairs, options)
        samples: list[Sample] = []
        for prompt, answer in pairs:
            if len(samples) >= options.num_prompts:
                break
            prompt_len = len(tokenizer.encode(prompt))
            fixed = options.sharegpt_output_len
            output_len = len(tokenizer.encode(answer)) if fixed is None else fixed
            if (
                _MIN_LEN <= prompt_len <= _MAX_PROMPT_LEN
                and prompt_len + output_len <= _MAX_TOTAL_LEN
                and (fixed is not None or output_len >= _MIN_LEN)
            ):
                samples.append(Sample(prompt, prompt_len, output_len))
    except (AttributeError, KeyError, TypeError) as error:
        raise _wrong(path, "a JSON list of conversations", error) from None
    return samples


def _custom(
    options: argparse.Namespace, tokenizer: Tokenizer | None, render: Render | None
) -> list[Sample]:
    rows = _rows(options.dataset_path, "prompt")
    return _of_rows(rows, options, options.custom_output_len, tokenizer, render)


def _spec_bench(
    options: argparse.Namespace, tokenizer: Tokenizer | None, render: Render | None
) -> list[Sample]:
    category = options.spec_bench_category
    rows = [
        {"prompt": row["turns"][0]}
        for row in _rows(options.dataset_path, "turns")
        if not category or row.get("category") == category
    ]
    return _of_rows(rows, options, options.spec_bench_output_len, tokenizer, render)


def _of_rows(
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    output_len: int,
    tokenizer: Tokenizer | None,
    render: Render | None,
) -> list[Sample]:
    _shuffle(rows, options)
    if options.num_prompts > 0:
        rows = rows[: options.num_prompts]
    samples = []
    for row in rows:
        if output_len == -1 and not isinstance(row.get("output_tokens"), int):
            raise ConfigError(
                f"--dataset-path {options.dataset_path}: without --custom-output-len each line "
                'needs an integer "output_tokens"'
            )
        text = row["prompt"] if render is None else render(row["prompt"])
        prompt_len = 1 if tokenizer is None else len(tokenizer.encode(text))
        length = row["output_tokens"] if output_len == -1 else output_len
        samples.append(Sample(text, prompt_len, length))
    return samples


def _rows(path: str, key: str) -> list[dict[str, Any]]:
    """The objects of a JSONL file, each with `key`."""
    what = f'one JSON object with the key "{key}" in each line'

    def parse(text: str) -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        for row in rows:
            row[key]
        return rows

    return _read(path, parse, what)


def _read(path: str, parse: Callable[[str], list[Any]], what: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = parse(file.read())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _wrong(path, what, error) from None
    return found


def _wrong(path: str, what: str, error: Exception) -> ConfigError:
    return ConfigError(f"--dataset-path {path} must hold {what}: {error!r}")


def _shuffle(rows: list[Any], options: argparse.Namespace) -> None:
    if not options.disable_shuffle:
        random.Random(options.seed).shuffle(rows)


def _as_many(samples: list[Sample], options: argparse.Namespace) -> list[Sample]:
    """The samples, some of them again if there are fewer than asked for."""
    if not samples:
        raise ConfigError(f"--dataset-path {options.dataset_path} holds no prompt that can be used")
    missing = options.num_prompts - len(samples)
    if options.no_oversample or missing <= 0:
        return samples
    draw = random.Random(options.seed)
    return [*samples, *(draw.choice(samples) for _ in range(missing))]


_GENERATED: dict[str, Callable[[argparse.Namespace, Tokenizer], list[Sample]]] = {
    "random": _random,
    "prefix_repetition": _prefix_repetition,
}
_FROM_FILE: dict[
    str, Callable[[argparse.Namespace, Tokenizer | None, Render | None], list[Sample]]
] = {"sharegpt": _sharegpt, "custom": _custom, "spec_bench": _spec_bench}
