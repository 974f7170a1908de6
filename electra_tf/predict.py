"""Predict labels, scores, tags or answers with a fine-tuned model.

echo 'a film to remember' | python -m electra_tf.predict --model=sst2

--input is lines of text, a table (.csv, .tsv, .jsonl) or questions in SQuAD's layout
(.json). A model of pairs takes lines of two texts with a tab between. Lines may be JSON
objects: text and text_b, words, or question and context. Each output record has the
`id` of its input record.
"""

import contextlib
import os
import sys

from absl import flags

from electra_tf import cli
from electra_tf.tasks import inference, prediction_inputs, task_evaluation

FLAGS = flags.FlagValues()


def _define(define, name: str, default, text: str, **how) -> None:
    define(name, default, text, flag_values=FLAGS, **how)


_define(flags.DEFINE_string, "model", None, "Required: the --output of finetune.")
_define(
    flags.DEFINE_string, "input", None,
    "A file, perhaps .gz or .xz; standard input unless given.",
)  # fmt: skip
_define(flags.DEFINE_string, "output", None, "A file; standard output unless given.")
_define(flags.DEFINE_bool, "overwrite", False, "Replace the file of --output.")
_define(
    flags.DEFINE_list, "text_columns", None,
    "The columns of a table, or keys of JSON, with the texts; those of training unless "
    "given.",
)  # fmt: skip
flags.DEFINE_enum(
    "format", "text", inference.FORMATS, "What is written.", flag_values=FLAGS
)
_define(
    flags.DEFINE_integer, "nbest", None,
    "Answers of each question that are written with --format=jsonl.", lower_bound=1,
)  # fmt: skip


def main() -> None:
    """Check the flags, load the model and write its predictions."""
    cli.require(FLAGS, "model")
    prediction_inputs.check_input(FLAGS.input)
    prediction_inputs.check_output(FLAGS.input, FLAGS.output, FLAGS.overwrite)
    model = inference.load(FLAGS.model)
    stored = task_evaluation.stored_columns(FLAGS.model, model).texts
    items = prediction_inputs.read_items(
        model, FLAGS.input, FLAGS.text_columns or None, stored
    )
    lines = inference.predict_items(model, items, FLAGS.format, FLAGS.nbest)
    partial = f"{FLAGS.output}.partial"
    try:
        with contextlib.ExitStack() as stack:
            target = sys.stdout
            if FLAGS.output:
                target = stack.enter_context(open(partial, "w", encoding="utf-8"))
            for line in lines:
                print(line, file=target)
        if FLAGS.output:
            os.replace(partial, FLAGS.output)
    finally:
        if FLAGS.output and os.path.exists(partial):
            os.remove(partial)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
