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

FLAGS = cli.Flags()
FLAGS.strings(
    model="Required: the --output of export or of finetune, a checkpoint or run of "
    "pretrain, a preset, or a model of another library.",
    name="Name of the model in URLs. Default: the last part of --model.",
)
FLAGS.strings(
    "127.0.0.1",
    host="Address to listen at. Other machines can reach the server at any other "
    "address.",
)
FLAGS.define(
    flags.DEFINE_integer, 8501, {"port": "Port; 0 for any free one."},
    lower_bound=0, upper_bound=65535,
)  # fmt: skip
FLAGS.choice(
    OUTPUT_KINDS,
    output_kind="Outputs of a pre-trained model: electra (replaced tokens and tokens "
    "for [MASK]), or encoder (hidden states). Default: electra.",
)
_LIMITS = {
    "max_waiting": "Unanswered requests, at most; further ones get status 503.",
    "max_request_bytes": "Bytes of a request; a larger one gets the status 413.",
    "threads": "Requests that are computed at the same time.",
}
for (_name, _text), _default in zip(_LIMITS.items(), ServerLimits(), strict=True):
    FLAGS.counts(_default, **{_name: _text})


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
    with http_server.bind(FLAGS.host, FLAGS.port) as listener:
        servable = open_servable(FLAGS.model, FLAGS.name, FLAGS.output_kind)
        servable.warm_up()
        limits = ServerLimits(*(FLAGS[name].value for name in _LIMITS))
        http_server.serve(servable, listener, limits)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
