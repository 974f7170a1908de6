"""Text -> WordPiece vocabulary.

python -m electra_tf.build_vocab --input='corpus/*.txt' --output=vocab.txt \\
    --size=30522 --heldout=other.txt
"""

import pathlib
import time

from absl import flags

from electra_tf import cli
from electra_tf.config import Config
from electra_tf.errors import InputError
from electra_tf.text.corpus import CorpusReader, progress_bar
from electra_tf.text.problems import ProblemLog
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab_training import Coverage, WordCounter, train

FLAGS = flags.FlagValues()
flags.DEFINE_list(
    "input",
    None,
    "Files, globs and tfds:NAME names, separated by commas: text, .jsonl, .parquet, "
    "and .gz or .xz of these.",
    flag_values=FLAGS,
)
flags.DEFINE_string("output", None, "The file to write.", flag_values=FLAGS)
flags.DEFINE_list(
    "heldout",
    None,
    "Text the vocabulary is not learnt from, to report [UNK] and pieces per word on.",
    flag_values=FLAGS,
)
flags.DEFINE_bool(
    "overwrite", False, "Replace a vocabulary that is there.", flag_values=FLAGS
)
SETTINGS = {
    "size": "vocabulary.size",
    "min_frequency": "vocabulary.min_frequency",
    "character_coverage": "vocabulary.character_coverage",
    "lower_case": "tokenization.lower_case",
    "strip_accents": "tokenization.strip_accents",
    "documents": "corpus.documents",
    "field": "corpus.field",
    "on_error": "corpus.on_error",
}
cli.define_config_flags(FLAGS, SETTINGS)


def main() -> None:
    """Learns the vocabulary and reports how well it fits."""
    cli.require(FLAGS, "input", "output")
    settings = cli.resolve(FLAGS, SETTINGS)
    output = pathlib.Path(FLAGS.output)
    if output.exists() and not FLAGS.overwrite:
        raise InputError(
            "An existing output is replaced only on request",
            f"{output}, which exists",
            "Pass --overwrite to replace it, or name another file",
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    problems = ProblemLog(settings.corpus.on_error, output.with_suffix(".problems.txt"))
    reader = CorpusReader(FLAGS.input, settings.corpus, problems)
    heldout = FLAGS.heldout and CorpusReader(FLAGS.heldout, settings.corpus, problems)
    tokenizer = _learn(reader, settings)
    tokenizer.save(output)
    print(f"{output}: {len(tokenizer.vocabulary):,} entries")
    if heldout:
        coverage = Coverage()
        for document in heldout:
            coverage.add(tokenizer, document.lines)
        print(f"held-out text: {coverage}")
    problems.close()
    for kind, count in problems.counts.items():
        print(f"{count:,} x {kind}: listed in {output.with_suffix('.problems.txt')}")


def _learn(reader: CorpusReader, settings: Config) -> Tokenizer:
    start = time.perf_counter()
    counter = WordCounter(settings.tokenization)
    with progress_bar(reader) as bar:
        for document in reader:
            counter.add(document.lines)
            bar.update(reader.position_bytes - bar.n)
    words = counter.words()
    if not words:
        raise InputError(
            "The input holds text", "not a single word", "Look at the input files"
        )
    seconds = time.perf_counter() - start
    print(f"{words.total():,} words, {len(words):,} different, in {seconds:.1f} s")
    if counter.forgotten:
        print(f"{counter.forgotten:,} words met once were forgotten to save memory")
    return Tokenizer(train(words, settings.vocabulary), settings.tokenization)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
