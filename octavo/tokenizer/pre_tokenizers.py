"""How byte-level vocabularies cut text before merging, by GGUF's `tokenizer.ggml.pre`.

A GGUF file names its pre-tokenizer and leaves the rule to the reader. Sources: the tokenizer.json
files the names stand for, and llama.cpp's src/llama-vocab.cpp, which lists which names share a
rule. Regular expressions are the originals (Oniguruma), not llama.cpp's rewritten ones.

Runs in: the API process. Owns: the table. Knows nothing of: files, vocabularies.
"""

from __future__ import annotations

from typing import Final

import msgspec


class PreTokenizer(msgspec.Struct, frozen=True):
    """Splits applied one after the other; each match stands alone, so does what lies between.

    Args:
        single_digits: each number character stands alone.
        patterns: the splits, before the byte-level step.
        gpt2_regex: the byte-level step also splits as GPT-2 did.
        nfc: text is normalised to NFC first.
        ignore_merges: a piece that is a token as a whole is that token, however merges would go.
        adds_bos: BOS is added unless the file says otherwise.
    """

    patterns: tuple[str, ...] = ()
    single_digits: bool = False
    gpt2_regex: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words_and_digits(digits: str, word: str = r"\p{L}", not_symbol: str = r"\s\p{L}\p{N}") -> str:
    """The family of cl100k: contractions, words with one leading symbol, digits, symbols, space."""
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{word}+|{digits}| ?[^{not_symbol}]+[\r\n]*|{_TAIL}"
    )


def _cased_words(digits: str, contractions: str) -> str:
    """The family of o200k: words end where a capital follows a small letter."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{lead}{upper}*{lower}+{contractions}|{lead}{upper}+{lower}*{contractions}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
    )


_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _words_and_digits(r"\p{N}{1,3}")
_CJK_DEEPSEEK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
#: letters with case, as DeepSeek LLM lists them
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    "\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    "\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK3_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_TAIL}"
)

_GPT2 = PreTokenizer(gpt2_regex=True)
_SINGLE_DIGITS = PreTokenizer(single_digits=True, gpt2_regex=True)
_LLAMA3_BPE = PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True)
_LLAMA3_SPLIT = PreTokenizer((_LLAMA3,))
_QWEN2 = PreTokenizer((_words_and_digits(r"\p{N}"),), nfc=True)
_GPT4O = PreTokenizer((_cased_words(r"\p{N}{1,3}", f"{_CONTRACTIONS}?"),))

#: name in the file -> rule
PRE_TOKENIZERS: Final[dict[str, PreTokenizer]] = {
    **dict.fromkeys(
        ("gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en",
         "jina-v2-code", "roberta-bpe", "gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4",
         "mpt", "olmo", "jais", "trillion", "granite-docling"), _GPT2),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        _SINGLE_DIGITS),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        _LLAMA3_BPE),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _LLAMA3_SPLIT),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan"),
        _QWEN2),
    "qwen35": PreTokenizer(
        (_words_and_digits(r"\p{N}", r"[\p{L}\p{M}]", r"\s\p{L}\p{M}\p{N}"),), nfc=True),
    "tekken": PreTokenizer((_cased_words(r"\p{N}", ""),), ignore_merges=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _GPT4O),
    "deepseek-llm": PreTokenizer((
        "[\r\n]", rf"\s?[{_CASED_LETTERS}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$", _CJK_DEEPSEEK, r"\p{N}+")),
    "deepseek-coder": PreTokenizer(
        ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_DEEPSEEK, r"\p{N}")),
    **dict.fromkeys(
        ("deepseek-v3", "hunyuan-dense"),
        PreTokenizer((r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                      _DEEPSEEK3_WORDS))),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2_WORDS, r"[0-9][0-9][0-9]")),
}  # fmt: skip

#: for a name that is not in the table, or none: what most byte-level vocabularies do
DEFAULT_PRE_TOKENIZER: Final = _GPT2
