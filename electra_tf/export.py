"""Export a trained model as a SavedModel that takes strings, or as LiteRT or ONNX.

electra-tf export --model=sst2 --output=served
"""

import dataclasses
import os

from absl import flags

from electra_tf import cli, model_names
from electra_tf.serving.export_options import (
    LIMITS,
    OUTPUT_KINDS,
    SAVED_MODEL,
    SIGNATURES,
    TARGETS,
    RequestLimits,
    check_arguments,
    formats,
)
from electra_tf.storage.mirror import check_new, staged
from electra_tf.storage.objects import ObjectFolder, is_url

# A server loads a version when it finds this file.
_LAST = ("saved_model.pb",)
_LIMITS = {
    "rows": "Texts",
    "bytes": "Bytes of all texts",
    "positions": "Positions (rows times those of the longest)",
}
FLAGS = flags.FlagValues()
cli.define(
    FLAGS,
    flags.DEFINE_string,
    None,
    model="Required: the --output of finetune, a checkpoint or run of pretrain, a name "
    "of `electra-tf presets`, or a pre-trained model of another library.",
    output="Required: folder for the versions of the model.",
)
flags.DEFINE_integer(
    "version", 1, "Version number, the name of the subfolder.", lower_bound=0,
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_list(
    "signatures", [*SIGNATURES],
    "Signatures of a SavedModel: text (strings), tokens (ids), or both.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_enum(
    "format", SAVED_MODEL, formats(), "Format of the exported model.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_enum(
    "output_kind", None, OUTPUT_KINDS,
    "Outputs of a pre-trained checkpoint: encoder (hidden states), or electra "
    "(replaced-token detection and tokens for [MASK]). Default: encoder.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_integer(
    "max_length", None,
    "Positions of a text, with special tokens, for a pre-trained checkpoint; longer "
    "texts are cut. Default: those of the run's records; 128 for a model of another "
    "library.",
    flag_values=FLAGS,
)  # fmt: skip
for _name, _default in dataclasses.asdict(LIMITS).items():
    flags.DEFINE_integer(
        f"max_{_name}", _default,
        f"{_LIMITS[_name]} of a request, at most; larger ones are refused before they "
        "take memory.",
        lower_bound=1, flag_values=FLAGS,
    )  # fmt: skip
flags.DEFINE_enum(
    "target", TARGETS[0], TARGETS,
    "Device that serves a SavedModel: cpu (a graph for oneDNN) or any (also GPUs). The "
    "outputs are the same.",
    flag_values=FLAGS,
)  # fmt: skip


def main() -> None:
    """Export the model and print how far its outputs differ from Keras's."""
    cli.require(FLAGS, "model", "output")
    model_names.check_exists(FLAGS.model)
    version = os.path.join(FLAGS.output, str(FLAGS.version))
    check_new(version, "--version", "Pass a higher --version")
    with staged(FLAGS.output, _LAST, _existing(FLAGS.output)) as output:
        _export(output)
    print(f"exported to {version}")


def _export(output: str) -> None:
    check_arguments(output, FLAGS.version, FLAGS.signatures, FLAGS.format)
    limits = RequestLimits(FLAGS.max_rows, FLAGS.max_bytes, FLAGS.max_positions)
    with cli.starting_tensorflow():
        from electra_tf.runs.exporting import load_exportable
        from electra_tf.serving.export import export
    exportable = load_exportable(
        FLAGS.model,
        FLAGS.output_kind,
        FLAGS.target,
        FLAGS.max_length,
        limits,
    )
    print(
        f"{exportable.kind}: exporting as {FLAGS.format}. Each output of a file is "
        "compared with the Keras model on sample requests; the largest differences:"
    )
    export(exportable, output, FLAGS.version, FLAGS.signatures, FLAGS.format)


def _existing(output: str) -> set[str]:
    """Return the files for servers that exist at a URL: people change these."""
    names = ObjectFolder(output).find() if is_url(output) else ()
    return {name for name in names if "/" not in name}


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
