"""Pre-train a model on records, with checkpoints.

electra-tf pretrain --config=small --data=records \\
    --model_dir=run

Run the same command again to resume a run that was stopped or killed. Set a greater
training.steps to train a completed run further.

Start a new run from the weights of another run or library:

electra-tf pretrain --config=base --data=records --model_dir=run \\
    --init_checkpoint=electra-base-discriminator,electra-base-generator

Records and initial weights may be in an object store (s3://, gs://). A backup there
has every checkpoint, and a machine without the run directory resumes from it:

electra-tf pretrain --config=small --data=s3://bucket/records \\
    --model_dir=run --backup=s3://bucket/run
"""

import os

from electra_tf import cli, model_names
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.storage.mirror import staged
from electra_tf.storage.objects import is_url
from electra_tf.text.checks import entry_warnings
from electra_tf.text.record_set import local_records, resolve_config
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import local_vocabulary

FLAGS = cli.Flags()
FLAGS.paths(
    data="Required: folder of build_records, or globs of record files.",
    evaluation_data="Held-out records for evaluation during training.",
)
FLAGS.strings(
    model_dir="Required except for --dry_run: run directory, new or to resume.",
    backup="URL of an object store for a copy of each checkpoint. A run directory "
    "without checkpoints begins from the newest one there.",
    vocab="The vocabulary, if it is not in the --data folder: a file with one entry "
    "per line, a tokenizer.json, or a folder with one of them.",
    init_checkpoint="Weights of a new run: a checkpoint or run directory, a name of "
    "`electra-tf presets`, a Hugging Face folder, a TensorFlow 1 or Model Garden "
    "checkpoint, or a KerasHub preset; or DISCRIMINATOR,GENERATOR.",
    report="HTML file with the curves of the run and sampled replacements, written "
    "when the command ends.",
)
FLAGS.switches(
    dry_run="Print sizes, cost, epochs, time and memory of steps, then exit.",
)
cli.define_device_flags(FLAGS)
cli.define_config_flags(FLAGS, {}, hidden="records")


@cli.resumable("from its newest checkpoint, if any")
def main() -> None:
    """Train until the last step or until a signal."""
    _check_flags()
    # Workers fetch records after they have found each other, as this may take hours.
    is_remote = any(map(is_url, FLAGS.data.split(",")))
    resolved = None if is_remote else _resolve()
    with cli.starting_tensorflow():
        from electra_tf.runs.experiment import Experiment
        from electra_tf.runs.pretraining import Run
        from electra_tf.runs.pretraining_report import write_pretraining_report
        from electra_tf.training import strategy
        from electra_tf.training.workers import is_chief
    devices = strategy.choose(FLAGS.strategy, FLAGS.tpu, FLAGS.cpu_replicas)
    data, config, tokenizer = resolved or _resolve()
    experiment = Experiment(config, tokenizer)
    record_set, evaluation_records = experiment.open(data), None
    experiment = experiment.with_counts(record_set)
    if FLAGS.evaluation_data:
        evaluation_records = experiment.open(FLAGS.evaluation_data)
    run = Run(
        experiment,
        devices,
        record_set,
        FLAGS.model_dir or os.devnull,
        evaluation_records,
        FLAGS.init_checkpoint,
        FLAGS.backup,
    )
    if FLAGS.dry_run:
        for line in run.describe():
            print(line, flush=True)
        return
    stop_signal, checkpoint = run.train()
    if not stop_signal:
        print(f"training completed; checkpoint: {checkpoint}", flush=True)
    if FLAGS.report and is_chief(devices):
        with staged(FLAGS.report) as path:
            shown = evaluation_records or record_set
            write_pretraining_report(path, FLAGS.model_dir, shown)
    if stop_signal:
        cli.exit_on_signal(stop_signal, f"from {checkpoint}")


def _check_flags() -> None:
    """Raise an error for values that can be rejected without TensorFlow."""
    cli.require(FLAGS, "data", *([] if FLAGS.dry_run else ["model_dir"]))
    if is_url(FLAGS.model_dir):
        raise InputError(
            f"--model_dir must be a local folder, not {FLAGS.model_dir}; pass "
            f"--model_dir=run --backup={FLAGS.model_dir}"
        )
    if FLAGS.backup and not is_url(FLAGS.backup):
        raise InputError(
            "--backup must be a URL such as s3://BUCKET/NAME, or for a folder "
            f"--backup=file://{os.path.abspath(FLAGS.backup)}"
        )
    cli.check_paths(FLAGS, "data", "evaluation_data")
    if FLAGS.dry_run and FLAGS.report:
        raise InputError(
            "--report must not be used with --dry_run, which trains nothing"
        )
    # A run that may be resumed does not read initial weights.
    if not (FLAGS.backup or os.path.exists(FLAGS.model_dir or "")):
        model_names.check_exists(FLAGS.init_checkpoint)
    cli.check_output(FLAGS, "report")


def _resolve() -> tuple[str, PretrainingConfig, WordPieceTokenizer]:
    """Return the records' local path, and the config and tokenizer for them."""
    data, vocab = local_records(FLAGS.data), local_vocabulary(FLAGS.vocab)
    config, tokenizer = resolve_config(
        data, vocab, lambda stored: cli.resolve(FLAGS, {}, stored)
    )
    if vocab:
        cli.warn(entry_warnings(tokenizer))
    return data, config, tokenizer


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
