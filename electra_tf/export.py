"""A trained model -> a SavedModel that takes strings, LiteRT or ONNX files.

python -m electra_tf.export --model=sst2 --output=served
"""

from absl import flags

from electra_tf import cli
from electra_tf.serving import export
from electra_tf.serving.pretrained_models import PARTS

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "model", None,
    "Required: the --output of finetune, or a checkpoint or run of pretrain.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string(
    "output", None, "Required: the folder of the model's versions.", flag_values=FLAGS
)
flags.DEFINE_integer(
    "version", 1, "The version's number, its folder's name.", lower_bound=0,
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_list(
    "signatures", [*export.SIGNATURES],
    "What a SavedModel takes: text, tokens (ids).",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_enum(
    "format", export.FORMATS[0], export.FORMATS, "What is written.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_enum(
    "part", None, PARTS,
    "Of a pre-trained checkpoint: encoder (vectors of texts), or electra (which tokens "
    "were replaced, and proposals for [MASK]).",
    flag_values=FLAGS,
)  # fmt: skip


def main() -> None:
    """Exports, and tells what was proved."""
    cli.require(FLAGS, "model", "output")
    export.check(FLAGS.output, FLAGS.version, FLAGS.signatures, FLAGS.format)
    exportable = export.load_exportable(FLAGS.model, FLAGS.part)
    print(f"{exportable.kind}: exporting as {FLAGS.format}, held against Keras:")
    folder = export.export(
        exportable, FLAGS.output, FLAGS.version, FLAGS.signatures, FLAGS.format
    )
    print(f"exported to {folder}")


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
