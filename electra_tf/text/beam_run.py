"""Run a Beam pipeline and read its results in the launching process."""

import contextlib
import json
import shlex
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from electra_tf.errors import InputError
from electra_tf.text import beam_files
from electra_tf.text.beam_files import WORK
from electra_tf.text.beam_pipeline import FAILURES, SOURCES, SUMMARY

import apache_beam as beam  # isort: skip (beam_files reports if it is missing)
from apache_beam.options.pipeline_options import PipelineOptions  # isort: skip
from apache_beam.runners.runner import PipelineState  # isort: skip

_MAX_MESSAGE = 600  # characters of a runner's error


def run_pipeline(
    construct: Callable[[beam.Pipeline], None],
    folder: str,
    sources: list[str],
    options: str,
) -> dict[str, Any]:
    """Run a pipeline and return its summary."""
    work = beam_files.join(folder, WORK)
    with beam_files.writing(work, SOURCES) as file:
        file.write(json.dumps(sources).encode())
    parsed = parse_options(options)
    try:
        pipeline = beam.Pipeline(options=parsed)
        construct(pipeline)
        with _workers_end_on_signal():
            state = _run(pipeline)
    except Exception as error:
        state = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
        raise _pipeline_error(options, state) from error
    if state != PipelineState.DONE:
        raise _pipeline_error(options, state)
    summary = json.loads(beam_files.read(work, SUMMARY))
    if summary[FAILURES]:
        _, message = min(summary[FAILURES])
        raise InputError(*message)
    return summary


@contextlib.contextmanager
def _workers_end_on_signal() -> Iterator[None]:
    """End worker processes of this machine before SIGINT and SIGTERM are handled.

    After an exception Beam waits for its worker processes, which do not end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs signal handlers in the main thread only
        return
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    handlers = {n: handler for n, handler in handlers.items() if callable(handler)}

    def stop(number: int, frame: Any) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        handlers[number](number, frame)

    for number in handlers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _run(pipeline: beam.Pipeline) -> str:
    result = pipeline.run()
    try:
        return result.wait_until_finish()
    except BaseException:
        result.cancel()  # a job on other machines would run on
        raise


def _pipeline_error(options: str, state: str) -> InputError:
    return InputError(
        "The Beam pipeline must finish",
        f"--beam_options={options!r}: {state}",
        "Read the log of the runner, and run the command again",
    )


def parse_options(options: str) -> PipelineOptions:
    """Return the options of Beam."""
    try:
        parsed = PipelineOptions(shlex.split(options))
        parsed.get_all_options()  # parses the values
        return parsed
    except (ValueError, SystemExit) as error:  # argparse prints its message and exits
        raise InputError(
            "--beam_options must be options of Beam, as on a command line",
            f"{options!r} ({error})",
            "Correct them; the documentation of the runner lists its options",
        ) from error


def temporary_folder(options: str, default: str) -> str:
    """Return a new folder in --temp_location of Beam, or the default."""
    location = parse_options(options).get_all_options().get("temp_location")
    if not location:
        return default
    return beam_files.join(location, f"electra_tf-{uuid.uuid4().hex}")
