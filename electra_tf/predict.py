"""Predict labels, scores, tags or answers with a fine-tuned model.

echo 'a film to remember' | electra-tf predict --model=sst2

--input is lines of text, a table (.csv, .tsv, .parquet), JSON (.jsonl, or .json with a
list), columns of words for a tagger (.conll), or questions in SQuAD's format (.json).
For a model of text pairs, a line has two texts separated by a tab. A tagger finds
entities in lines, and tags lists of words. Keys of JSON are text and text_b, words or
tokens (a list), or question and context. Tables and JSON of predictions have the
columns of the input first. A line has the `id` of its record, if it has one.
"""

from electra_tf import cli, model_names
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.storage.mirror import local_path, staged
from electra_tf.tasks.data.files import check_input_file, print_note

FLAGS = cli.Flags()
FLAGS.strings(
    model="Required: the --output of finetune.",
    input="A file, also .gz or .xz. Default: standard input, as with -.",
    output="A file. Default: standard output, as with -.",
)
FLAGS.switches(overwrite="Replace the --output file.")
_COLUMNS = "text_columns", "choice_columns", "missing_text"
_SETTINGS = {name: f"data.{name}" for name in _COLUMNS}
cli.define_setting_flags(FLAGS, _SETTINGS, FinetuningConfig, "as in training")
FLAGS.choice(("text", "jsonl", "tsv", "csv"), "text", format="Format of the output.")
FLAGS.counts(None, nbest="Answers per question with --format=jsonl.")


def main() -> None:
    """Load the model and write its predictions."""
    cli.require(FLAGS, "model")
    source = local_path(FLAGS.input)
    check_input_file(source)
    cli.check_output(FLAGS, "output")
    with staged(FLAGS.output) as output:
        model_names.check_exists(FLAGS.model)
        with cli.starting_tensorflow():
            from electra_tf import sources
            from electra_tf.tasks import registry
            from electra_tf.tasks.load import load
            from electra_tf.tasks.predictions import predict_items
        found = sources.open_source(FLAGS.model)
        model = load(found)
        task = registry.of(model)
        flags = {name: FLAGS[name].value for name in _COLUMNS}
        reading = task.reading(model, found.task, flags, print_note, ["text_columns"])
        inputs = task.inputs(model, source, reading)
        lines = predict_items(model, inputs, FLAGS.format, FLAGS.nbest)
        cli.write_lines(lines, output)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
