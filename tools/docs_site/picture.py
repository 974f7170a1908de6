"""Draw README's sentences with the probability that each token was replaced.

python tools/docs_site/picture.py docs/images/odd_words.svg
"""

import html
import pathlib
import sys

from electra_tf import Electra

TEXTS = (
    "The film stars Tom Hanks as a lawyer who is swim by his company.",
    "In 1945 the war ended and the soldiers returned house to their families.",
    "The band released its first album in 1994 and its second window in 1996.",
)
_CHARACTER, _LINE, _MARGIN = 11, 58, 22
_STYLE = """
svg { color-scheme: light dark }
.card { fill: #fff; stroke: #d8d8d8 }
text { font: 18px ui-monospace, Menlo, Consolas, monospace; fill: #222 }
.odd { font-size: 13px; fill: #b3261e }
.note { font: 13px system-ui, sans-serif; fill: #666 }
@media (prefers-color-scheme: dark) {
  .card { fill: #161b22; stroke: #444 } text { fill: #e6e6e6 }
  .odd { fill: #ff8a80 } .note { fill: #aaa }
}"""
_NOTE = "The redder a word, the more probably it replaced another one."


def draw(texts: tuple[str, ...]) -> str:
    """Return an SVG with a line for each text."""
    electra = Electra.from_preset("electra_wiki_en")
    width = _CHARACTER * max(map(len, texts)) + 2 * _MARGIN
    height = _LINE * len(texts) + 52
    parts = []
    for row, tokens in enumerate(electra.replaced_tokens(list(texts))):
        text, y = texts[row], 40 + row * _LINE
        for token in tokens:
            x = _MARGIN + token.start * _CHARACTER
            size = (token.end - token.start) * _CHARACTER
            parts.append(
                f'<rect x="{x}" y="{y - 19}" width="{size}" height="27" rx="4" '
                f'fill="#e63c28" fill-opacity="{0.75 * token.probability:.3f}"/>'
            )
            if token.probability > 0.5:
                parts.append(
                    f'<text class="odd" x="{x + size / 2}" y="{y + 25}" '
                    f'text-anchor="middle">{token.probability:.0%}</text>'
                )
        length = len(text) * _CHARACTER
        parts.append(
            f'<text x="{_MARGIN}" y="{y}" textLength="{length}">'
            f"{html.escape(text)}</text>"
        )
    place = f'class="note" x="{_MARGIN}" y="{height - 16}"'
    parts.append(f"<text {place}>{html.escape(_NOTE)}</text>")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img"><style>{_STYLE}</style>\n'
        f'<rect class="card" x="1" y="1" width="{width - 2}" height="{height - 2}" '
        f'rx="8"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(draw(TEXTS), encoding="utf-8")
