"""Convert a pre-trained or fine-tuned model between this package and other libraries.

electra-tf convert --from=run --to=for_transformers --format=huggingface
"""

import dataclasses

from electra_tf import cli, model_names
from electra_tf.interop import MODEL, formats
from electra_tf.interop.heads import HeadOptions
from electra_tf.storage.mirror import check_new, staged
from electra_tf.text.tokenizer_files import local_vocabulary
from electra_tf.training.checkpoint import MANIFEST

# Files by which a reader recognises a folder, so they are uploaded after the others.
_LAST = ("config.json", MODEL, MANIFEST)
FLAGS = cli.Flags()
FLAGS.strings(
    **{
        "from": "Required: a checkpoint or run of pretrain, a name of `electra-tf "
        "presets`, a Hugging Face folder, a TensorFlow 1 or Model Garden checkpoint, a "
        "KerasHub preset, an --output of finetune, or an id of the Hugging Face hub; "
        "or DISCRIMINATOR,GENERATOR."
    },
    to="Required: the folder to write, which must be new or empty.",
    vocab="A vocabulary for a source without one, or in place of its own: a file of "
    "entries, a tokenizer.json, or a folder with one of them.",
)
FLAGS.choice(formats.names(), "electra_tf", format="Format of the folder.")
FLAGS.choice(
    ("all", "discriminator", "generator"), "all", part="Networks of a pair to convert."
)
FLAGS.choice(
    ("auto", "none"),
    "auto",
    sharing="auto: a pair shares equal tables, and copies that differ are an error. "
    "none: each network keeps its own.",
)
FLAGS.switches(
    force="Write a target whose library lacks a setting of the source.",
    drop_head="Convert the encoder of a fine-tuned model without its head.",
    pairs="Convert a classifier or regressor of pairs of texts: other libraries do not "
    "store which it is.",
)
FLAGS.lists(
    [],
    labels="Names of the classes or tags of a fine-tuned model in the order of its "
    "outputs. Default: those of the source.",
)


def main() -> None:
    """Convert the model and print how the target differs."""
    cli.require(FLAGS, "from", "to")
    check_new(FLAGS.to, "--to", "Pass another URL")
    cli.check_paths(FLAGS, "vocab")
    model_names.check_exists(FLAGS["from"].value)
    with cli.starting_tensorflow():
        from electra_tf.runs.conversion import convert_checkpoint
    with staged(FLAGS.to, last=_LAST) as folder:
        report = convert_checkpoint(
            FLAGS["from"].value,
            folder,
            FLAGS.format,
            part=FLAGS.part,
            vocab=local_vocabulary(FLAGS.vocab),
            sharing=FLAGS.sharing,
            force=FLAGS.force,
            drop_head=FLAGS.drop_head,
            head=HeadOptions(tuple(FLAGS.labels), FLAGS.pairs),
        )
    print(dataclasses.replace(report, target=FLAGS.to))


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
