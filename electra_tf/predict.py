"""A fine-tuned model and lines of text -> labels, scores, tags or answers.

echo 'a film to remember' | python -m electra_tf.predict --model=sst2

A model of pairs takes lines of two texts with a tab between, one of questions JSON
objects with question and context.
"""

import contextlib
import os
import sys

from absl import flags

from electra_tf import cli
from electra_tf.errors import InputError
from electra_tf.tasks import predicting

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "model", None, "Required: the --output of finetune.", flag_values=FLAGS
)
flags.DEFINE_string(
    "input",
    None,
    "A file of lines, perhaps .gz or .xz; standard input unless given.",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "output", None, "A file; standard output unless given.", flag_values=FLAGS
)
flags.DEFINE_enum(
    "format", "text", predicting.FORMS, "What is written.", flag_values=FLAGS
)


def main() -> None:
    """Answers line by line, a thousand at a time."""
    cli.require(FLAGS, "model")
    paths = FLAGS.input, FLAGS.output
    if all(paths) and len({*map(os.path.realpath, paths)}) == 1:
        raise InputError(
            "--output is another file than --input",
            f"{FLAGS.output} for both",
            "Name a new file; answers would take the place of the texts",
        )
    lines = predicting.lines_of(FLAGS.input)
    model = predicting.load(FLAGS.model)
    partial = f"{FLAGS.output}.partial"
    with contextlib.ExitStack() as stack:
        target = sys.stdout
        if FLAGS.output:
            target = stack.enter_context(open(partial, "w", encoding="utf-8"))
        for line in predicting.predict_lines(model, lines, FLAGS.format):
            print(line, file=target)
    if FLAGS.output:
        os.replace(partial, FLAGS.output)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
