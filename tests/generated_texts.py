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
    """Return a text of up to 40 parts; each tenth part has any code points."""
    parts = []
    for _ in range(rng.choice([0, 1, 3, 8, 8, 40])):
        if rng.random() < 0.1:
            codes = (rng.randrange(0x110000) for _ in range(rng.randint(1, 4)))
            parts.append("".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000))
        else:
            parts.append(rng.choice(PARTS))
        parts.append(rng.choice(SPACES) if rng.random() < 0.6 else " ")
    return "".join(parts)


def random_texts(count: int, seed: int = 0) -> list[str]:
    """Return random texts."""
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(count)]
