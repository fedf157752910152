"""Which files of a repository, or of a folder, make up the model that was asked for.

Runs in: the API process, before the engine is configured. Owns: the choice among file names.
Knows nothing of: the network, caches, file contents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from typing import Final

import msgspec

from octavo.errors import ConfigError
from octavo.weights.safetensors import INDEX_NAME

#: what a tokenizer is made of; beside weights, SIDE_FILES are, and nothing else is fetched
TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
)
SIDE_FILES: Final = (
    *TOKENIZER_FILES,
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
)

#: weights of other kinds, to be named where there is nothing else
OTHER_WEIGHTS: Final = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx")

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANTIZATION = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|MXFP4\w*|BF16|F16|F32|FP16|FP32))$", re.IGNORECASE
)


class ModelFiles(msgspec.Struct, frozen=True):
    """`names` is everything to have; `entry` is what to open: a GGUF file, or "" for the folder."""

    names: tuple[str, ...]
    entry: str


def choose_files(
    names: Iterable[str],
    *,
    source: str,
    quantization: str | None = None,
    file: str | None = None,
    ignore_patterns: Sequence[str] = (),
) -> ModelFiles:
    """Chooses among the files of a repository.

    Args:
        names: paths inside the repository, with `/`.
        source: its name, for sentences.
        quantization: a name like Q4_K_M: the GGUF file that is quantised so.
        file: exactly this GGUF file.
        ignore_patterns: globs of names that are left out.

    Raises:
        ConfigError: there is no such file, more than one, or nothing that can be served.
    """
    kept = sorted(
        name for name in names if not any(fnmatch(name, pattern) for pattern in ignore_patterns)
    )
    groups = _gguf_groups(kept)
    if file is not None:
        for members in groups.values():
            if file in members:
                return ModelFiles(tuple(members), members[0])
        raise ConfigError(f"{source} has no file {file}; it has {_listed(groups, source)}.")
    if quantization is not None:
        return _quantized(groups, source, quantization)
    if "config.json" in kept and any(_is_weight(name) for name in kept):
        return ModelFiles(tuple(_checkpoint_files(kept)), "")
    if len(groups) == 1:
        members = next(iter(groups.values()))
        return ModelFiles(tuple(members), members[0])
    if groups:
        raise ConfigError(f"{source} has several models; name one: {_listed(groups, source)}.")
    if INDEX_NAME in kept:
        raise ConfigError(f"{source} lacks the files that {INDEX_NAME} names; download them too.")
    for name in kept:
        if name.endswith(OTHER_WEIGHTS):
            raise ConfigError(
                f"{source} has its weights in {name}, which is not supported; use a version with "
                "safetensors or a GGUF file."
            )
    raise ConfigError(
        f"{source} has neither a GGUF file nor config.json with safetensors, so there is nothing "
        "to serve."
    )


def choose_tokenizer_files(names: Iterable[str], *, source: str) -> ModelFiles:
    """Chooses the files of a repository's tokenizer, without its weights.

    Raises:
        ConfigError: it has no tokenizer.json.
    """
    kept = sorted(names)
    if "tokenizer.json" not in kept:
        raise ConfigError(
            f"{source} has no tokenizer.json; name a repository or folder that has one, or a GGUF "
            "file."
        )
    return ModelFiles(tuple(_matching(kept, TOKENIZER_FILES)), "")


def _quantized(groups: dict[str, list[str]], source: str, quantization: str) -> ModelFiles:
    # the quantisation as the name ends in it, or any other part between separators
    part = re.compile(rf"(?:^|[-./]){re.escape(quantization)}(?:[-.]|$)", re.IGNORECASE)
    matches = {
        stem: members
        for stem, members in groups.items()
        if _quantization_of(stem).lower() == quantization.lower()
    } or {stem: members for stem, members in groups.items() if part.search(stem)}
    if len(matches) == 1:
        members = next(iter(matches.values()))
        return ModelFiles(tuple(members), members[0])
    if matches:
        names = ", ".join(members[0] for members in matches.values())
        raise ConfigError(
            f"{source} has several files for {quantization}: {names}; name one as "
            f"{source}/{next(iter(matches.values()))[0]}."
        )
    if not groups:
        raise ConfigError(f"{source} has no GGUF files, so :{quantization} names nothing.")
    raise ConfigError(
        f"{source} has nothing quantised as {quantization}; it has {_listed(groups, source)}."
    )


def _gguf_groups(names: list[str]) -> dict[str, list[str]]:
    """Stem without shard number -> its files in order; projectors of vision models left out."""
    groups: dict[str, list[str]] = {}
    for name in names:
        base = name.rsplit("/", 1)[-1].lower()
        if base.endswith(".gguf") and not base.startswith("mmproj"):
            stem = _SHARD.sub("", name[: -len(".gguf")])
            groups.setdefault(stem, []).append(name)
    return groups


def _quantization_of(stem: str) -> str:
    """Q4_K_M of model-Q4_K_M; the whole stem when it says none."""
    match = _QUANTIZATION.search(stem)
    return match[1] if match else stem


def _listed(groups: dict[str, list[str]], source: str) -> str:
    """Names the user may choose: quantisations if each is there once, else files."""
    if not groups:
        return "no GGUF files"
    quantizations = [_quantization_of(stem) for stem in groups]
    if len(set(quantizations)) == len(groups) and all(_QUANTIZATION.search(s) for s in groups):
        return ", ".join(f"{source}:{name}" for name in quantizations)
    return ", ".join(f"{source}/{members[0]}" for members in groups.values())


def _is_weight(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name


def _checkpoint_files(names: list[str]) -> list[str]:
    weights = [name for name in names if _is_weight(name)]
    # consolidated.safetensors is the same model once more, in its author's own layout
    named_model = [name for name in weights if name.startswith("model")]
    return _matching(names, SIDE_FILES) + (named_model or weights)


def _matching(names: list[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]
