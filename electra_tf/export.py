"""Export a trained model as a SavedModel that takes strings, or as LiteRT or ONNX.

electra-tf export --model=sst2 --output=served
"""

import dataclasses
import os

from electra_tf import cli, model_names
from electra_tf.serving.export_options import (
    LIMITS,
    OUTPUT_KINDS,
    SAVED_MODEL,
    SIGNATURES,
    TARGETS,
    RequestLimits,
    check_export,
    formats,
)
from electra_tf.storage.mirror import check_new, staged

# A server loads a version when it finds this file.
_LAST = ("saved_model.pb",)
_LIMITS = {
    "rows": "Texts",
    "bytes": "Bytes of all texts",
    "positions": "Positions (rows times those of the longest)",
}
FLAGS = cli.Flags()
FLAGS.strings(
    model="Required: the --output of finetune, a checkpoint or run of pretrain, a name "
    "of `electra-tf presets`, or a pre-trained model of another library.",
    output="Required: folder for the versions of the model.",
)
FLAGS.counts(1, 0, version="Version number, the name of the subfolder.")
FLAGS.lists(
    [*SIGNATURES],
    signatures="Signatures of a SavedModel: text (strings), tokens (ids), or both.",
)
FLAGS.choice(formats(), SAVED_MODEL, format="Format of the exported model.")
FLAGS.choice(
    OUTPUT_KINDS[:1],
    output_kind="encoder: hidden states, also of a model that has a head of a task; "
    "the default for a pre-trained checkpoint.",
)
FLAGS.counts(
    max_length="Positions of a text, with special tokens, for a pre-trained "
    "checkpoint; longer texts are cut. Default: those of the run's records; 128 for a "
    "model of another library."
)
for _name, _default in dataclasses.asdict(LIMITS).items():
    _text = f"{_LIMITS[_name]} of a request, at most; larger ones are refused before "
    FLAGS.counts(_default, **{f"max_{_name}": f"{_text}they take memory."})
FLAGS.choice(
    TARGETS,
    TARGETS[0],
    target="Device that serves a SavedModel: cpu (short texts take less time there) or "
    "any (also GPUs). The outputs are the same.",
)


def main() -> None:
    """Export the model and print how far its outputs differ from Keras's."""
    cli.require(FLAGS, "model", "output")
    model_names.check_exists(FLAGS.model)
    version = os.path.join(FLAGS.output, str(FLAGS.version))
    check_new(version, "--version", "pass a higher --version")
    with staged(FLAGS.output, _LAST) as output:
        folder = os.path.join(output, str(FLAGS.version))
        check_export(folder, FLAGS.format, FLAGS.signatures)
        limits = RequestLimits(FLAGS.max_rows, FLAGS.max_bytes, FLAGS.max_positions)
        with cli.starting_tensorflow():
            from electra_tf.runs.exporting import load_exportable
            from electra_tf.serving.export import export
        options = FLAGS.output_kind, FLAGS.target, FLAGS.max_length, limits
        exportable = load_exportable(FLAGS.model, *options)
        print(
            f"{exportable.kind}: exporting as {FLAGS.format}. Each output of a file is "
            "compared with the Keras model on sample requests; the largest differences:"
        )
        export(exportable, folder, FLAGS.format, FLAGS.signatures)
    print(f"exported to {version}")


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
