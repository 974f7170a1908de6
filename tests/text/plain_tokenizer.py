"""Plain implementation of the original tokenizer's rules, as a reference for tests.

It follows google-research/electra, model/tokenization.py, step by step on whole strings
and shares no code with `electra_tf`.
"""

import unicodedata


def tokenize(
    text: str | bytes,
    ids: dict[str, int],
    lower_case: bool = True,
    strip_accents: bool = True,
) -> list[int]:
    """Return the ids of a text; accents are stripped only if it is lower-cased."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "ignore")
    result = []
    for word in basic_tokenize(text, lower_case, strip_accents):
        result += [ids[piece] for piece in wordpiece(word, ids)]
    return result


def basic_tokenize(text: str, lower_case: bool, strip_accents: bool) -> list[str]:
    words = []
    for word in _space_ideographs(_clean(text)).split():
        if lower_case:
            word = word.lower()
            if strip_accents:
                word = _strip_accents(word)
        words += _split_on_punctuation(word)
    return " ".join(words).split()


def wordpiece(word: str, ids: dict[str, int]) -> list[str]:
    if len(word) > 200:
        return ["[UNK]"]
    pieces = []
    rest = word
    while rest:
        for end in range(len(rest), 0, -1):
            piece = ("##" if pieces else "") + rest[:end]
            if piece in ids:
                pieces.append(piece)
                rest = rest[end:]
                break
        else:
            return ["[UNK]"]
    return pieces


def _clean(text: str) -> str:
    out = []
    for c in text:
        if c == "\0" or c == "\ufffd":
            continue
        if c in "\t\n\r" or unicodedata.category(c) == "Zs":
            out.append(" ")
        elif unicodedata.category(c)[0] != "C":
            out.append(c)
    return "".join(out)


CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def _space_ideographs(text: str) -> str:
    is_chinese = [any(a <= ord(c) <= b for a, b in CHINESE) for c in text]
    return "".join(
        f" {c} " if spaced else c for c, spaced in zip(text, is_chinese, strict=True)
    )


def _strip_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def _split_on_punctuation(word: str) -> list[str]:
    parts = [""]
    for c in word:
        n = ord(c)
        ascii_sign = 33 <= n <= 47 or 58 <= n <= 64 or 91 <= n <= 96 or 123 <= n <= 126
        if ascii_sign or unicodedata.category(c)[0] == "P":
            parts += [c, ""]
        else:
            parts[-1] += c
    return [part for part in parts if part]
