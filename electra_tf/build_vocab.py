"""Train a WordPiece vocabulary on text.

electra-tf build_vocab --input='corpus/*.txt' --output=vocab.txt \\
    --size=30522 --heldout=other.txt
"""

import pathlib
import time

from electra_tf import cli
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.storage.mirror import check_new, staged
from electra_tf.text import builder, checks, vocab_training
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.tokenizer import WordPieceTokenizer, settings_path

FLAGS = cli.Flags()
cli.define_input_flags(
    FLAGS,
    {
        "input": "Required: the corpus",
        "heldout": "Other text, for which [UNK] and wordpieces per word are reported",
    },
)
FLAGS.strings(output="Required: the file to write.")
FLAGS.switches(overwrite="Replace an existing vocabulary.")
_SETTINGS = cli.TEXT_SETTINGS | {
    "size": "vocabulary.size",
    "min_frequency": "vocabulary.min_frequency",
    "character_coverage": "vocabulary.character_coverage",
}
cli.define_config_flags(FLAGS, _SETTINGS)


def main() -> None:
    """Train the vocabulary and print its statistics."""
    cli.require(FLAGS, "input", "output")
    settings = cli.resolve(FLAGS, _SETTINGS)
    if not FLAGS.overwrite:
        check_new(FLAGS.output, "--output", "pass --overwrite, or another --output")
    with staged(FLAGS.output) as output:
        _build(settings, pathlib.Path(output))


def _build(settings: PretrainingConfig, output: pathlib.Path) -> None:
    error_file = output.with_name(f"{output.name}.problems.txt")
    for path in (output, settings_path(output), error_file):
        cli.check_output(FLAGS, "output", path)
    log = DataErrorLog(settings.corpus.on_error, error_file)
    heldout = FLAGS.heldout and CorpusReader(FLAGS.heldout, settings.corpus, log)
    if settings.corpus.on_error == "stop":
        for _ in heldout or ():  # an error in it would end hours of work later
            pass
    start = time.perf_counter()
    if not cli.is_given(FLAGS, "strip_accents", _SETTINGS):
        builder.check_accents(FLAGS.input, settings)
    words, dropped = vocab_training.count_words(FLAGS.input, settings, log)
    seconds = time.perf_counter() - start
    print(f"{words.total():,} words, {len(words):,} different, in {seconds:.1f} s")
    if dropped:
        print(f"{dropped:,} rare words were dropped to bound the memory")
    options, requested = settings.tokenization, settings.vocabulary
    whole = options.keep_whole
    vocabulary = vocab_training.train_wordpieces(words, requested, whole)
    tokenizer = WordPieceTokenizer(vocabulary, options)
    tokenizer.save(output)  # an error in the held-out text does not lose it
    stats = vocab_training.VocabStats(tokenizer)
    for document in heldout or ():
        stats.add_lines(document.lines)
    log.close()
    if not log.counts:
        error_file.unlink(missing_ok=True)  # of the replaced vocabulary
    size = len(vocabulary)
    reason = (
        f"; no other pair occurs {requested.min_frequency} times"
        if size < requested.size
        else ""
    )
    print(f"{FLAGS.output}: {size:,} entries of {requested.size:,} requested{reason}")
    if FLAGS.heldout:
        print(f"held-out text: {stats}")
    cli.warn(checks.unknown_warnings(stats.share, tokenizer))
    for kind, count in log.counts.items():
        print(f"{count:,} x {kind}: listed in {FLAGS.output}.problems.txt")


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
