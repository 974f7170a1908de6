"""Build pre-training records from text.

electra-tf build_records --input='corpus/*.txt' --vocab=vocab.txt \\
    --output=records
"""

import functools
import os
import time
from collections.abc import Callable

from electra_tf import cli
from electra_tf.errors import InputError
from electra_tf.text import builder, checks, records
from electra_tf.text.records import Manifest
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import local_vocabulary, open_tokenizer

FLAGS = cli.Flags()
cli.define_input_flags(FLAGS, {"input": "Required: the corpus"})
FLAGS.strings(
    vocab="Required: the vocabulary, a file with one entry per line, a "
    "tokenizer.json, a folder with one of them, or a name of electra-tf presets.",
    output="Required: the folder to write.",
)
FLAGS.counts(os.cpu_count(), workers="Worker processes.")
FLAGS.choice(
    ["local", "beam"],
    "local",
    runner="`local`: processes of this machine. `beam`: a pipeline of Apache Beam, "
    "on one or many machines (extra `beam`).",
)
FLAGS.strings(
    beam_options="Options of Beam for --runner=beam, in quotes: "
    "'--runner=FlinkRunner --flink_master=localhost:8081'."
)
FLAGS.switches(overwrite="Replace existing records.")
_SETTINGS = cli.TEXT_SETTINGS | {
    "max_length": "records.max_length",
    "order": "records.order",
    "seed": "records.seed",
    "shards": "records.shards",
    "deduplicate": "records.deduplicate",
}
cli.define_config_flags(FLAGS, _SETTINGS)


def _build_function() -> Callable[..., Manifest]:
    """Return the function that builds records with the runner of the flags."""
    is_beam = FLAGS.runner == "beam"
    other = "workers" if is_beam else "beam_options"
    if FLAGS[other].present:
        needed = "local" if is_beam else "beam"
        raise InputError(
            f"--{other}={FLAGS[other].value} needs --runner={needed}, not "
            f"{FLAGS.runner}"
        )
    if is_beam:
        from electra_tf.text import beam  # needs an extra

        options = {"options": FLAGS.beam_options or ""}
        return functools.partial(beam.build, **options, overwrite=FLAGS.overwrite)
    options = {"workers": FLAGS.workers}
    return functools.partial(builder.build, **options, overwrite=FLAGS.overwrite)


def main() -> None:
    """Build the records and print their statistics."""
    cli.require(FLAGS, "input", "vocab", "output")
    cli.check_replaced_folder(FLAGS, "output")
    build = _build_function()
    start = time.perf_counter()
    vocab = local_vocabulary(FLAGS.vocab)
    stored = open_tokenizer(vocab)
    vocabulary = stored.vocabulary
    settings = cli.resolve(FLAGS, _SETTINGS, stored.base)
    stored.check(settings.tokenization)
    if not cli.is_given(FLAGS, "strip_accents", _SETTINGS, stored.base):
        builder.check_accents(FLAGS.input, settings)
    settings, lines = builder.with_order(FLAGS.input, vocabulary, settings)
    for line in lines:
        print(line)
    manifest = build(FLAGS.input, vocabulary, settings, FLAGS.output)
    seconds = time.perf_counter() - start
    print(
        f"{FLAGS.output}: {manifest.records:,} records of {manifest.max_length} "
        f"(shards: {len(manifest.shards)}) from {manifest.documents:,} documents, "
        f"{manifest.sentences:,} sentences, {manifest.tokens:,} tokens "
        f"({manifest.unknown_share:.3%} [UNK], {manifest.padding_share:.1%} padding) "
        f"in {seconds:.1f} s, {manifest.tokens / seconds:,.0f} tokens/s\n"
        f"text {settings.tokenization}, {settings.records.order} order: "
        f"{manifest.discarded_tokens / manifest.tokens:.1%} of the tokens discarded"
        + (" (set --order=document to keep all)" if manifest.discarded_tokens else "")
    )
    tokenizer = WordPieceTokenizer(vocabulary, settings.tokenization)
    cli.warn(checks.record_warnings(manifest, tokenizer))
    for kind, count in manifest.duplicates.items():
        print(
            f"{count:,} documents dropped as {kind} duplicates: listed in "
            f"{FLAGS.output}/{records.DUPLICATES}"
        )
    for kind, count in manifest.problems.items():
        print(f"{count:,} x {kind}: listed in {FLAGS.output}/{records.PROBLEMS}")


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
