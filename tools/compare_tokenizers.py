"""Compare this package's tokenizer with Hugging Face's on every line of files.

python tools/compare_tokenizers.py HUGGINGFACE_FOLDER FILE [FILE ...]

The tokenizer of the folder is read by this package and by transformers. Lines whose ids
differ are printed, with the words that differ; the exit status is 1 if there are any.
The tokenizer is compared once more after this package has written its files, and as
TensorFlow operations. Needs transformers (the extra `interop-test`).
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from electra_tf.config.loader import load_config
from electra_tf.interop import huggingface
from electra_tf.text.files import inner_suffix, open_compressed
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.tokenizer_files import find_tokenizer

Encode = Callable[[Sequence[str]], Iterable[Sequence[int]]]
_BATCH = 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", help="a Hugging Face model or tokenizer")
    parser.add_argument("files", nargs="+", help="text, .csv or .json; .gz, .xz")
    arguments = parser.parse_args()
    stored = find_tokenizer(arguments.folder)
    if stored is None:
        parser.error(f"{arguments.folder} has neither vocab.txt nor tokenizer.json")
    tokenizer = stored.tokenizer(huggingface.TOKENIZATION)
    differences = 0
    for name, encode in encoders(arguments.folder, tokenizer):
        for file in arguments.files:
            lines, found = 0, 0
            for number, line, ids in _compared(tokenizer, encode, file):
                lines = number
                ours = tokenizer.encode(line)
                if ours != list(ids):
                    found += 1
                    print(f"  {file}:{number}: {_difference(tokenizer, ours, ids)}")
            print(f"{name}, {file}: {lines:,} lines, {found:,} differ", flush=True)
            differences += found
    return int(differences > 0)


def encoders(folder: str, tokenizer: Tokenizer) -> Iterator[tuple[str, Encode]]:
    """Yield the tokenizers to compare with, by description."""
    yield "transformers", transformers_encoder(folder)
    with tempfile.TemporaryDirectory() as written:
        size = len(tokenizer.vocabulary)
        model = load_config("tiny", [f"model.vocabulary_size={size}"]).model
        huggingface.write_tokenizer(tokenizer, model.encoder, written)
        yield "transformers, files written here", transformers_encoder(written)
    graph = tokenizer.graph()
    yield "TensorFlow operations", lambda lines: graph(lines).to_list()


def transformers_encoder(folder: str) -> Encode:
    """Return transformers' tokenizer of a folder, without special tokens."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return lambda lines: (
        tokenizer(list(lines), add_special_tokens=False, verbose=False).input_ids
    )


def read_lines(path: str) -> Iterator[str]:
    with open_compressed(path) as file:
        text = file.read().decode("utf-8-sig")
    is_json = inner_suffix(path) == ".json"
    yield from _strings(json.loads(text)) if is_json else text.split("\n")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _compared(
    tokenizer: Tokenizer, encode: Encode, path: str
) -> Iterator[tuple[int, str, Sequence[int]]]:
    lines = enumerate(read_lines(path), 1)
    while batch := list(itertools.islice(lines, _BATCH)):
        encoded = encode([line for _, line in batch])
        for (number, line), ids in zip(batch, encoded, strict=True):
            yield number, line, ids


def _difference(tokenizer: Tokenizer, ours: Sequence[int], ids: Sequence[int]) -> str:
    """Describe the first wordpieces that differ."""
    tokens = tokenizer.vocabulary.tokens
    pairs = enumerate(itertools.zip_longest(ours, ids))
    start = next(index for index, (a, b) in pairs if a != b)
    shown = (
        " ".join(tokens[i] for i in sequence[max(0, start - 2) : start + 8])
        for sequence in (ours, ids)
    )
    return "electra_tf {} | other {}".format(*shown)


if __name__ == "__main__":
    sys.exit(main())
