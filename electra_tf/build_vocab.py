"""Text -> WordPiece vocabulary.

python -m electra_tf.build_vocab --input='corpus/*.txt' --output=vocab.txt \\
    --size=30522 --heldout=other.txt
"""

import pathlib

from absl import flags

from electra_tf import cli
from electra_tf.text import warnings
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.tokenizer import settings_path
from electra_tf.text.vocab_training import VocabStats, check_outputs, train_vocabulary

FLAGS = flags.FlagValues()
cli.define_input_flags(
    FLAGS,
    {
        "input": "Required: the corpus",
        "heldout": "Other text, to report [UNK] and pieces on",
    },
)
flags.DEFINE_string("output", None, "Required: the file to write.", flag_values=FLAGS)
flags.DEFINE_bool(
    "overwrite", False, "Replace a vocabulary that is there.", flag_values=FLAGS
)
SETTINGS = {
    "size": "vocabulary.size",
    "min_frequency": "vocabulary.min_frequency",
    "character_coverage": "vocabulary.character_coverage",
    "lower_case": "tokenization.lower_case",
    "strip_accents": "tokenization.strip_accents",
    "split_unspaced": "tokenization.split_unspaced",
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
    listed = output.with_name(f"{output.name}.problems.txt")
    check_outputs([output, settings_path(output), listed], FLAGS.overwrite)
    problems = DataErrorLog(settings.corpus.on_error, listed)
    reader = CorpusReader(FLAGS.input, settings.corpus, problems)
    heldout = FLAGS.heldout and CorpusReader(FLAGS.heldout, settings.corpus, problems)
    may_strip = cli.is_given(FLAGS, "strip_accents", SETTINGS)
    tokenizer, counter = train_vocabulary(reader, settings, may_strip=may_strip)
    coverage = VocabStats()
    for document in heldout or ():
        coverage.add(tokenizer, document.lines)
    problems.close()
    tokenizer.save(output)
    if not problems.counts:
        listed.unlink(missing_ok=True)  # that of the vocabulary that was replaced
    size, wanted = len(tokenizer.vocabulary), settings.vocabulary
    rare = (
        f"; no other pair occurs {wanted.min_frequency} times"
        if size < wanted.size
        else ""
    )
    print(f"{output}: {size:,} entries of {wanted.size:,} asked for{rare}")
    if FLAGS.heldout:
        print(f"held-out text: {coverage}")
    stripped = counter.stripping.found()
    if stripped.share >= 0.0001:
        print(f"{stripped}; --strip_accents=never keeps them")
    for line in warnings.long_word_warnings(*counter.too_long.values(), tokenizer):
        print(line)
    long, _ = tokenizer.too_long
    cli.warn(warnings.unknown_warnings(coverage.unknown_share, tokenizer, long))
    for kind, count in problems.counts.items():
        print(f"{count:,} x {kind}: listed in {listed}")


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
