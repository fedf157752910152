"""A GGUF file's vocabulary -> `tokenizers.Tokenizer`.

Three kinds of vocabulary, by `tokenizer.ggml.model` and the architecture: byte-level BPE (gpt2),
SentencePiece BPE with byte fallback (llama), and the same as Gemma has it. Ids are those of the
tokenizer.json the file was converted from.

Runs in: the API process. Owns: the mapping. Knows nothing of: tensors, chat templates' content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from octavo.errors import ConfigError, StartupError
from octavo.tokenizer.loaded_tokenizer import LoadedTokenizer
from octavo.tokenizer.pre_tokenizers import DEFAULT_PRE_TOKENIZER, PRE_TOKENIZERS, PreTokenizer
from octavo.weights.gguf import GGUFFile
from octavo.wording import first_line, printable, shown

logger = logging.getLogger(__name__)

PREFIX: Final = "tokenizer.ggml."
CONTROL: Final = 3  # token types of the GGUF specification
USER_DEFINED: Final = 4
MAX_PIECE_CHARACTERS: Final = 1024  # of a SentencePiece token; real ones have at most 128
MAX_CHARACTERS: Final = 20_000_000  # of such a vocabulary; Gemma's has 1.5 million
SPACE_MARK: Final = "\u2581"  # how SentencePiece spells a space

#: name in chat templates -> key of its id
_SPECIAL_KEYS: Final = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "sep_token": "seperator_token_id",  # sic, in the specification
    "mask_token": "mask_token_id",
}


def load_gguf_tokenizer(path: str) -> LoadedTokenizer:
    """Reads the vocabulary of a GGUF file.

    Raises:
        ConfigError: the file is missing, or its kind of vocabulary is not supported.
        StartupError: the file is damaged, or its vocabulary does not fit together.
    """
    gguf = GGUFFile(path, keep_strings=True)
    loaded = _Builder(gguf).build()
    gguf.close()
    return loaded


class _Builder:
    def __init__(self, gguf: GGUFFile) -> None:
        self._gguf = gguf
        self._tokens = self._strings("tokens")
        if not self._tokens:
            raise ConfigError(
                f"{gguf.path} has no vocabulary; name a tokenizer with --tokenizer, or use a GGUF "
                "file that has one."
            )
        self._special_ids = self._read_special_ids()
        self._special_tokens = {
            name: self._tokens[token_id] for name, token_id in self._special_ids.items()
        }

    def build(self) -> LoadedTokenizer:
        kind = self._gguf.text(f"{PREFIX}model")
        family = self._gguf.text("general.architecture") or ""
        build: Callable[[], tuple[Tokenizer, bool]]
        if kind == "gpt2":
            build = self._byte_level
        elif kind == "llama" and family.startswith("gemma"):
            build = self._gemma
        elif kind == "llama":
            build = self._sentencepiece
        else:
            raise ConfigError(
                f"{self._gguf.path} has a vocabulary of kind {shown(kind)}, which is not "
                "supported; name another tokenizer with --tokenizer."
            )
        try:
            tokenizer, adds_bos = build()
        except StartupError:  # says it all itself
            raise
        except Exception as error:  # the library raises bare exceptions on what it cannot use
            raise self._gguf.damaged(
                f"its vocabulary does not fit together ({first_line(error)})"
            ) from error
        self._add_marked_tokens(tokenizer)
        self._add_post_processor(tokenizer, adds_bos)
        return LoadedTokenizer(tokenizer, self._special_tokens, self._chat_templates())

    # ---- kinds of vocabulary: the tokenizer, and whether BOS is added unless the file says so

    def _byte_level(self) -> tuple[Tokenizer, bool]:
        rule = self._pre_tokenizer()
        merges = self._strings("merges")
        tokenizer = Tokenizer(
            BPE(
                vocab=dict(zip(self._tokens, range(len(self._tokens)), strict=True)),
                merges=split_merges(merges),
                ignore_merges=rule.ignore_merges,
            )
        )
        if rule.nfc:
            tokenizer.normalizer = normalizers.NFC()
        digits = [pre_tokenizers.Digits(individual_digits=True)] if rule.single_digits else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *digits,
                *(pre_tokenizers.Split(Regex(p), behavior="isolated") for p in rule.patterns),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.gpt2_regex),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer, rule.adds_bos

    def _sentencepiece(self) -> tuple[Tokenizer, bool]:
        vocab = dict(zip(self._tokens, range(len(self._tokens)), strict=True))
        scores = self._scores()
        token_to_score = dict(zip(self._tokens, scores, strict=True))
        tokenizer = self._fallback_bpe(vocab, list(vocab), list(token_to_score.values()))
        has_prefix = self._gguf.flag(f"{PREFIX}add_space_prefix") is not False
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement=SPACE_MARK, prepend_scheme="first" if has_prefix else "never", split=False
        )
        steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
        if has_prefix:
            steps.append(decoders.Strip(content=" ", left=1))
        tokenizer.decoder = decoders.Sequence(steps)
        return tokenizer, True

    def _gemma(self) -> tuple[Tokenizer, bool]:
        # runs of spaces are stored as spaces, but matched after spaces became marks
        tokens = [
            SPACE_MARK * len(token) if token.startswith("  ") and not token.strip(" ") else token
            for token in self._tokens
        ]
        vocab = dict(zip(tokens, range(len(tokens)), strict=True))
        # the order of the vocabulary is the order of the merges; the scores are not
        has_each_once = len(vocab) == len(tokens)
        ranked = tokens if has_each_once else sorted(vocab, key=vocab.__getitem__)
        tokenizer = self._fallback_bpe(vocab, ranked, None)
        tokenizer.normalizer = normalizers.Replace(" ", SPACE_MARK)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        return tokenizer, True

    def _fallback_bpe(
        self, vocab: dict[str, int], tokens: list[str], scores: list[float] | None
    ) -> Tokenizer:
        """Args:
        tokens: each token of `vocab` once.
        scores: of `tokens`; None: they are sorted by score, best first.
        """
        stored = self._strings("merges")
        longest, total = max(map(len, vocab)), sum(map(len, vocab))
        if longest > MAX_PIECE_CHARACTERS or total > MAX_CHARACTERS:  # all ways to cut are tried
            raise ValueError(f"a token has {longest} characters, all have {total}")
        if stored:
            merges = split_merges(stored)
        else:
            # late: numpy takes 0.1 s to load, and only vocabularies without merges need it
            from octavo.tokenizer.sentencepiece_merges import merges_from_scores

            merges = merges_from_scores(tokens, scores)
        return Tokenizer(
            BPE(
                vocab=vocab,
                merges=merges,
                unk_token=self._special_tokens.get("unk_token"),
                fuse_unk=True,
                byte_fallback=True,
            )
        )

    # ---- parts

    def _strings(self, key: str) -> list[str]:
        array = self._gguf.array(PREFIX + key)
        return array.strings() if array is not None else []

    def _scores(self) -> list[float]:
        array = self._gguf.array(f"{PREFIX}scores")
        scores = [float(score) for score in array.numbers()] if array is not None else []
        if len(scores) != len(self._tokens):
            raise self._gguf.damaged(f"it has {len(self._tokens)} tokens but {len(scores)} scores")
        return scores

    def _read_special_ids(self) -> dict[str, int]:
        """Ids by their names in chat templates. An id outside the vocabulary is no token: some
        files write such a number for "none"."""
        ids = {name: self._gguf.integer(PREFIX + key) for name, key in _SPECIAL_KEYS.items()}
        num_tokens = len(self._tokens)
        return {name: i for name, i in ids.items() if i is not None and 0 <= i < num_tokens}

    def _pre_tokenizer(self) -> PreTokenizer:
        name = self._gguf.text(f"{PREFIX}pre")
        rule = PRE_TOKENIZERS.get(name or "")
        if rule is None:
            logger.warning(
                "%s names the pre-tokenizer %s, which is not known; text is cut as GPT-2 does, "
                "which may cost quality. --tokenizer can name the original tokenizer.",
                self._gguf.path,
                printable(name or "None"),
            )
            return DEFAULT_PRE_TOKENIZER
        return rule

    def _add_marked_tokens(self, tokenizer: Tokenizer) -> None:
        """Control tokens become special tokens, user-defined ones plain added tokens: both are
        matched in text as a whole."""
        array = self._gguf.array(f"{PREFIX}token_type")
        types = array.numbers() if array is not None else []
        if array is not None and len(types) != len(self._tokens):
            raise self._gguf.damaged(f"it has {len(self._tokens)} tokens but {len(types)} types")
        for marked, is_special in ((CONTROL, True), (USER_DEFINED, False)):
            if marked not in types:
                continue
            added = [
                AddedToken(token, normalized=False, special=is_special)
                for token, token_type in zip(self._tokens, types, strict=True)
                if token_type == marked and token and tokenizer.token_to_id(token) is not None
            ]
            if is_special:
                tokenizer.add_special_tokens(added)
            else:
                tokenizer.add_tokens(added)

    def _add_post_processor(self, tokenizer: Tokenizer, adds_bos: bool) -> None:
        asked = self._gguf.flag(f"{PREFIX}add_bos_token")
        parts = ["$A"]
        if (adds_bos if asked is None else asked) and "bos_token" in self._special_ids:
            parts.insert(0, "bos_token")
        if self._gguf.flag(f"{PREFIX}add_eos_token") and "eos_token" in self._special_ids:
            parts.append("eos_token")
        if len(parts) > 1:
            tokenizer.post_processor = TemplateProcessing(
                single=parts,
                special_tokens=[
                    {"id": name, "ids": [token_id], "tokens": [self._tokens[token_id]]}
                    for name, token_id in self._special_ids.items()
                ],
            )

    def _chat_templates(self) -> dict[str, str]:
        templates: dict[str, str] = {}
        default = self._gguf.text("tokenizer.chat_template")
        if default is not None:
            templates["default"] = default
        names = self._gguf.array("tokenizer.chat_templates")
        for name in names.strings() if names is not None else []:
            template = self._gguf.text(f"tokenizer.chat_template.{name}")
            if template is not None:
                templates[name] = template
        return templates


def split_merges(merges: list[str]) -> list[tuple[str, str]]:
    """The two tokens of each merge: "a b" -> ("a", "b"). Spellings of tokens hold no space.

    Raises:
        ValueError: a merge is not two tokens.
    """
    if not merges:
        return []
    parts = " ".join(merges).split(" ")  # one pass in C: there are tens of thousands
    if len(parts) != 2 * len(merges):
        raise ValueError("a merge is not two tokens")
    return list(zip(parts[::2], parts[1::2], strict=True))
