"""Random texts of all of Unicode, and of what is hard to split or to count."""

import random

PARTS = (
    # Letters, digits and punctuation.
    *("Anna", "Zürich", "e.g.", "don't", "U.S.", "3,14", "¿qué?", "№5", "$4", "—"),
    # Letters that change in length or with their neighbours.
    *("İstanbul", "ﬁn", "ß", "ẞ", "ΟΔΟΣ", "ΑΣ.Α", "Σ", "ŉ", "Å", "≠", "½", "\u1fef"),
    # Combining marks, also without a letter, of several scripts.
    *("e\u0301", "a\u0328\u0301b", "\u0301", "क्षि", "ன்", "กำ", "\u05e9\u05c1"),
    ".\u0338",
    # Emoji with joiners, tones, selectors and tags; keycaps and flags.
    *("👩\u200d👩\u200d👧\u200d👦", "👍🏽", "❤\ufe0f", "1\ufe0f\u20e3", "🇨🇭", "🙂🙃"),
    "🏴\U000e0067\U000e0062\U000e007f",
    # Right to left, with marks of direction.
    *("محمد", "القاهرة،", "שלום", "\u200fدبي\u200e", "\u202bאב\u202c", "می\u200cخواهم"),
    # Scripts without spaces.
    *("北京", "我在柏林。", "東京タワー", "ภาษาไทย", "서울", "𠀀", "\U0002f800"),
    # Characters that normalization removes.
    *("\u200b", "\u00ad", "\ufeff", "\x00", "\x7f", "\ufffd", "\ue000"),
    *("a\u200bb", "\U0010fff1"),
    # Special tokens, and characters above the BMP.
    *("[MASK]", "[CLS]", "##ing", "𝔘𝔫𝔦", "\U0001d400"),
    # Characters of one kind.
    "abc XYZ 019 .,'-_@#$%^&*()[]{}<>|~`\"\\/?!=+",
    "ΑΣσςΣΑ. '\u00ad\u0301\u0345\u02b0:·’\u200d ΣΣ",  # final sigma and its ignorables
    "İIıiÌJ̇Şßẞŉǰΐﬁﬀ",  # lower cases of several characters
    "中文字㐀䶵\U00020000\U0002a6df\uf900\U0002f800、。，：「」　",  # ideographs, signs
    "\ufa6e\U0002a6de\U0002ceae\u9fff",  # unassigned among ideographs
    "\u0300\u0301\u0308\u0323\u0338\u034f\u20d0éạ̈ệÅ",  # combining marks
    "\0\x01\x08\x0b\x0c\x1c\x1d\x1e\x1f\x7f\x85\x9f",  # controls, some are spaces
    "\u200b\u200c\u200d\u200e\u202a\u2060\ufeff\u00ad\ufffd",  # zero width
    "\t\n\r \xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000",  # spaces
    "가각힣가한글 ひらカナー",  # Hangul (decomposes), kana
    "\u037e\u1fef\u2260\u226e\u212b\u2126",  # change in decomposition
)  # fmt: skip
SPACES = (
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u00a0",
    "\u2028",
    "\u3000",
    "\x85",
    "\x0b",
)


def random_text(rng: random.Random) -> str:
    """Return a text of up to 40 parts, whole, mixed, or of any code points."""
    parts = []
    for _ in range(rng.choice([0, 1, 3, 8, 8, 40])):
        kind = rng.random()
        if kind < 0.1:
            codes = (rng.randrange(0x110000) for _ in range(rng.randint(1, 4)))
            parts.append("".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000))
        elif kind < 0.4:
            # Two parts, so that rare pairs (sigma and newline) occur.
            letters = "".join(rng.sample(PARTS, 2))
            parts.append("".join(rng.choices(letters, k=rng.randint(1, 8))))
        else:
            parts.append(rng.choice(PARTS))
        parts.append(rng.choice(SPACES) if rng.random() < 0.6 else " ")
    return "".join(parts)


def random_texts(count: int, seed: int = 0) -> list[str]:
    """Return random texts."""
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(count)]


def random_bytes(count: int, seed: int = 0) -> list[bytes]:
    """Return random texts as UTF-8, of which each fifth is damaged."""
    rng = random.Random(seed)
    contents = []
    for _ in range(count):
        content = random_text(rng).encode()
        if rng.random() < 0.2:
            place = rng.randint(0, len(content))
            # A surrogate, or any bytes.
            damage = rng.choice([b"\xed\xa0\x80", rng.randbytes(3)])
            content = content[:place] + damage + content[place:]
        contents.append(content)
    return contents
