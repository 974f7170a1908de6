"""Serve a model on this machine over HTTP, with TF Serving's REST API and a page.

electra-tf serve --model=sst2

It is for one machine: there is no authentication and no encryption. For more, export
the model for TF Serving, Triton or KServe. The extra `http` must be installed.
"""

import re

from absl import flags

from electra_tf import cli, model_names
from electra_tf.errors import InputError
from electra_tf.serving.export_options import (
    OUTPUT_KINDS,
    ServerLimits,
    check_installed,
)

FLAGS = flags.FlagValues()
cli.define(
    FLAGS,
    flags.DEFINE_string,
    None,
    model="Required: the --output of export or of finetune, a checkpoint or run of "
    "pretrain, a preset, or a model of another library.",
    name="Name of the model in URLs. Default: the last part of --model.",
)
flags.DEFINE_string(
    "host", "127.0.0.1",
    "Address to listen at. Other machines can reach the server at any other address.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_integer(
    "port", 8501, "Port; 0 for any free one.", 0, 65535, flag_values=FLAGS
)
flags.DEFINE_enum(
    "output_kind", None, OUTPUT_KINDS,
    "Outputs of a pre-trained model: electra (replaced tokens and tokens for [MASK]), "
    "or encoder (hidden states). Default: electra.",
    flag_values=FLAGS,
)  # fmt: skip
_LIMITS = {
    "max_waiting": "Requests that are not answered yet; further ones get status 503.",
    "max_request_bytes": "Bytes of a request; a larger one gets the status 413.",
    "threads": "Requests that are computed at the same time.",
}
for (_name, _text), _default in zip(_LIMITS.items(), ServerLimits(), strict=True):
    flags.DEFINE_integer(_name, _default, _text, lower_bound=1, flag_values=FLAGS)


def main() -> None:
    """Load the model and serve it until SIGTERM."""
    cli.require(FLAGS, "model")
    model_names.check_exists(FLAGS.model)
    if FLAGS.name and not re.fullmatch(r"[\w.-]+", FLAGS.name, re.ASCII):
        raise InputError(
            f"--name must be of letters, digits, `_`, `.` and `-`, not {FLAGS.name!r}"
        )
    check_installed("http", "electra-tf serve")
    with cli.starting_tensorflow():
        from electra_tf.runs.exporting import open_servable
        from electra_tf.serving import http_server
    listener = http_server.bind(FLAGS.host, FLAGS.port)
    servable = open_servable(FLAGS.model, FLAGS.name, FLAGS.output_kind)
    servable.warm_up()
    limits = ServerLimits(*(FLAGS[name].value for name in _LIMITS))
    http_server.serve(servable, listener, limits)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
