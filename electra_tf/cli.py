"""Define flags, build configs from them, and print errors, for every command.

The module of a command defines flags and checks them and what they name, so what it
imports is free of TensorFlow. Then it imports what it runs, `with
starting_tensorflow():`.
"""

import contextlib
import difflib
import gc
import glob
import io
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from absl import flags

from electra_tf import backend, durable_files
from electra_tf.config import loader
from electra_tf.errors import InputError
from electra_tf.storage.mirror import check_new, local_path
from electra_tf.storage.objects import ObjectFolder, is_url, split_url

# TensorFlow reads the variable only when it is imported. Without an NVIDIA driver it
# logs an error (level 2) about the missing driver, "failed call to cuInit", so errors
# are hidden there.
_HAS_DRIVER = any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if _HAS_DRIVER else "3")

# A command overrides keras.json; another value of the variable is an error.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
try:
    backend.check()
except ImportError as error:
    sys.exit(f"error: {error}")


TEXT_SETTINGS = {
    "documents": "corpus.documents",
    "field": "corpus.field",
    "on_error": "corpus.on_error",
    "lower_case": "tokenization.lower_case",
    "strip_accents": "tokenization.strip_accents",
    "split_unspaced": "tokenization.split_unspaced",
    "keep_whole": "tokenization.keep_whole",
}
"""Settings of the commands that read a corpus, by flag."""


_DATA_FLAGS = "data", "evaluation_data", "input", "heldout"
_OUTPUT_FLAGS = "output", "report", "save_predictions"
_STDIN, _STDOUT = "/dev/stdin", "/dev/stdout"
_REPORT = b'name="generator" content="electra_tf"'


class Flags(flags.FlagValues):
    """Flags of a command, defined by kind with their descriptions."""

    def strings(self, default: str | None = None, /, **texts: str) -> None:
        """Define strings."""
        self.define(flags.DEFINE_string, default, texts)

    def lists(self, default: list[str] | None = None, /, **texts: str) -> None:
        """Define lists of strings, separated by commas."""
        self.define(flags.DEFINE_list, default, texts)

    def paths(self, **texts: str) -> None:
        """Define paths, separated by commas, as one string."""
        self.define(flags.DEFINE_string, None, texts, allow_overwrite=False)

    def switches(self, **texts: str) -> None:
        """Define booleans that are off by default."""
        self.define(flags.DEFINE_bool, False, texts)

    def counts(
        self, default: int | None = None, lowest: int = 1, /, **texts: str
    ) -> None:
        """Define integers from the lowest one on."""
        self.define(flags.DEFINE_integer, default, texts, lower_bound=lowest)

    def choice(
        self, choices: Sequence[str], default: str | None = None, /, **texts: str
    ) -> None:
        """Define strings that must be one of some."""
        self.define(flags.DEFINE_enum, default, texts, enum_values=choices)

    def define(
        self, kind: Callable, default: Any, texts: Mapping[str, str], **options: Any
    ) -> None:
        """Define flags of a kind of absl by their descriptions.

        A second flag would drop the first one, so a list must be set once.
        """
        if kind is flags.DEFINE_list:
            options["allow_overwrite"] = False
        for name, text in texts.items():
            kind(name, default, help=text, flag_values=self, **options)


def define_input_flags(flag_values: Flags, purposes: Mapping[str, str]) -> None:
    """Define flags for text inputs."""
    formats = (
        "files, globs and tfds:NAME[@SPLIT], separated by commas. Formats: plain text, "
        ".csv, .tsv, .jsonl, .ndjson, .json, each also as .gz or .xz, and .parquet."
    )
    flag_values.lists(**{n: f"{purpose}: {formats}" for n, purpose in purposes.items()})


def define_config_flags(
    flag_values: Flags,
    names: Mapping[str, str],
    root: type = loader.PretrainingConfig,
    hidden: str = "",
) -> None:
    """Define `--config`, `--set` and flags for frequent settings.

    The help lists the installed configs of the class `root`, except those whose names
    start with `hidden`.
    """
    configs = loader.installed(root)
    configs = [name for name in configs if not (hidden and name.startswith(hidden))]
    text = "A YAML file of settings, or the name of an installed config: "
    flag_values.strings(config=f"{text}{', '.join(configs)}.")
    text = (
        "A setting, as --set=section.name=value. It overrides --config; the setting's "
        "own flag overrides both. `mkdocs serve` has all of them on the page Settings"
    )
    flag_values.define(flags.DEFINE_multi_string, [], {"set": text})
    flag_values["set"].root = root
    define_setting_flags(flag_values, names, root)


def define_setting_flags(
    flag_values: Flags, names: Mapping[str, str], root: type, instead: str = ""
) -> None:
    """Define flags for settings; `instead` describes another default than theirs."""
    for flag, dotted in names.items():
        kind, choices, text, default = loader.describe_field(dotted, root)
        if instead:
            text, default = f"{text} Default: {instead}.", None
        if choices:
            flag_values.choice(choices, default, **{flag: text})
        else:
            flag_values.define(_DEFINE[kind], default, {flag: text})


def define_device_flags(flag_values: Flags) -> None:
    """Define flags for the devices."""
    names = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
    flag_values.choice(names, "auto", strategy="Distribution strategy.")
    text = "A TPU: --tpu=NAME, or --tpu for the TPU of this machine."
    tpu = _OptionalValueFlag("tpu", "local", text)
    flags.DEFINE_flag(tpu, flag_values=flag_values)
    text = "Number of replicas on the CPU for --strategy=mirrored without GPUs, to "
    flag_values.counts(1, cpu_replicas=f"{text}test distribution.")


class _OptionalValueFlag(flags.Flag):
    """String flag whose value may be omitted."""

    def __init__(self, name: str, implicit: str, text: str):
        # absl accepts only boolean flags without a value.
        super().__init__(flags.ArgumentParser(), None, name, None, text, boolean=True)
        self._implicit = implicit

    def _parse(self, argument):
        return {"true": self._implicit, "false": None}.get(argument, argument)


_DEFINE = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
}


def resolve(
    flag_values: flags.FlagValues,
    names: Mapping[str, str],
    base: Mapping[str, Any] | None = None,
    root: type[loader.Root] = loader.PretrainingConfig,
) -> loader.Root:
    """Load the config, overridden by `--set` and by the flags of settings."""
    overrides = loader.parse_sets(flag_values.set) | {
        dotted: flag_values[flag].value
        for flag, dotted in names.items()
        if flag_values[flag].present
    }
    config = local_path(flag_values.config)
    return loader.load_config(config, overrides, root, base)


def is_given(
    flag_values: flags.FlagValues,
    flag: str,
    names: Mapping[str, str],
    base: Mapping[str, Any] | None = None,
) -> bool:
    """Return whether a flag, `--set`, `--config` or the base sets a setting."""
    given = loader.given_names(local_path(flag_values.config))
    given |= {*loader.parse_sets(flag_values.set), *(base or {})}
    return flag_values[flag].present > 0 or names[flag] in given


def write_lines(lines: Iterable[str], output: str | None) -> None:
    """Write lines to a file, which appears when it is complete, or to stdout."""
    if output is None or output == _STDOUT:
        for line in lines:
            print(line)
        return
    with durable_files.replacing(output) as file:
        for line in lines:
            print(line, file=file)


def warn(lines: Iterable[str]) -> None:
    """Print each line as a warning on standard error."""
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)


def _format_warning(message, category, filename, lineno, line=None) -> str:
    if category is UserWarning:
        return f"warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def require(flag_values: flags.FlagValues, *names: str) -> None:
    """Raise an InputError that lists the flags of `names` without a value."""
    missing = [f"--{name}" for name in names if not flag_values[name].value]
    if missing:
        raise InputError(
            f"{' and '.join(missing)} must be set; --help describes all flags"
        )


def check_paths(flag_values: flags.FlagValues, *names: str) -> None:
    """Raise an InputError for a flag that names a local path without a file."""
    for name in names:
        value = flag_values[name].value or ""
        for path in [value] if os.path.exists(value) else value.split(","):
            is_remote = "://" in path or path.startswith("tfds:")
            if not (path == "" or is_remote or os.path.exists(path) or glob.glob(path)):
                raise InputError(f"--{name}: {path!r} does not exist")


def check_output(
    flag_values: flags.FlagValues, flag: str, path: str | os.PathLike | None = None
) -> None:
    """Raise an InputError for a file that a command must not write.

    It must be no file that another flag names, and new without `--overwrite`, unless it
    is a report of this package. Its folder is created.

    Args:
        flag_values: All flags of the command.
        flag: Name of the flag with the file.
        path: The file, if it is derived from the value of the flag.
    """
    path = os.fspath(path or flag_values[flag].value or "")
    _check_is_no_input(flag_values, flag, path)
    remedy = "pass another"
    if "overwrite" in flag_values:
        remedy = None if flag_values.overwrite else "pass another, or --overwrite"
    if is_url(path):
        if remedy and not _is_report(path):
            check_new(path, f"--{flag}", remedy)
        return
    if not path or durable_files.is_stream(path):
        return
    if os.path.isdir(path):
        reason = "is a folder"
    elif os.path.exists(path) and remedy and not _is_report(path):
        reason = f"exists; {remedy}"
    else:
        reason = _why_not_writable(path)
    if reason:
        raise InputError(f"--{flag} must be a file to write: {path!r} {reason}")


def check_replaced_folder(flag_values: flags.FlagValues, flag: str) -> None:
    """Raise an InputError if a folder that is replaced has files of other flags."""
    _check_is_no_input(flag_values, flag, flag_values[flag].value, is_folder=True)


def _check_is_no_input(
    flag_values: flags.FlagValues, flag: str, path: str, is_folder: bool = False
) -> None:
    output = os.path.realpath(path)
    for name, source in _named_files(flag_values) if path else ():
        other = os.path.realpath(source)
        is_same = other == output or (is_folder and other.startswith(f"{output}/"))
        # A folder of data is read file by file.
        is_part = name in _DATA_FLAGS and other == os.path.dirname(output)
        if name != flag and (is_same or (is_part and os.path.isfile(output))):
            raise InputError(
                f"--{flag} must be no input, but --{name} names {source!r}; pass "
                "another path"
            )


def _named_files(flag_values: flags.FlagValues) -> Iterator[tuple[str, str]]:
    """Yield names of flags with the existing files, folders, and models in them."""
    for name in flag_values:
        for item in _items(flag_values[name]):
            for path in [item] if os.path.exists(item) else glob.glob(item):
                yield name, path
                yield name, os.path.join(path, "model.keras")


def _items(flag: flags.Flag) -> list[str]:
    """Return the strings of a flag of paths, or none."""
    if isinstance(flag, flags.EnumFlag | flags.MultiFlag) or not flag.value:
        return []
    value = flag.value
    if isinstance(value, str):
        value = [value] if os.path.exists(value) else value.split(",")
    return value if isinstance(value, list) else []


def _why_not_writable(path: str) -> str | None:
    """Try to write beside a file, in a folder that is created if it is missing."""
    folder = os.path.dirname(path) or "."
    try:
        os.makedirs(folder, exist_ok=True)
        partial = f"{path}{durable_files.PARTIAL}"
        with open(partial, "ab"):
            os.remove(partial)
    except OSError as error:
        return f"cannot be written in {folder!r}: {error.strerror or error}"
    return None


def _is_report(path: str) -> bool:
    """Return whether a file is a report of this package, which no command reads."""
    if not is_url(path):
        with open(path, "rb") as file:
            return _REPORT in file.read(1000)
    parent, name = split_url(path)
    folder = ObjectFolder(parent)
    if folder.info(name) is None:
        return False
    with folder.open(name) as file:
        return _REPORT in file.read(1000)


@contextlib.contextmanager
def starting_tensorflow() -> Iterator[None]:
    """Return the context of imports that need TensorFlow, after a command's checks.

    TensorFlow creates millions of objects that are never freed. A garbage collection
    while they are created takes a quarter of the time, a later one seconds. Notes that
    TensorFlow prints meanwhile are dropped, unless an import fails.
    """
    gc.disable()
    try:
        with backend.held_back_stderr():
            yield
    finally:
        gc.enable()
        gc.freeze()


# Starts of Python's messages, which absl shows, and what a value must be.
_KINDS = {
    "invalid literal for int": "an integer",
    "could not convert": "a number",
    "('Non-boolean argument": "true or false",
}


def run(
    main: Callable[[], None], flag_values: flags.FlagValues, usage: str | None
) -> None:
    """Parse the command line into `flag_values` and call `main`.

    An `InputError`, an `OSError` or an invalid flag ends the process with status 1.
    """
    if {"--help", "-help", "-h"} & set(sys.argv[1:]):
        # Drop absl's headings, which are names of modules.
        lines = flag_values.get_help().splitlines()
        text = "\n".join(line for line in lines if line.startswith(" "))
        print(f"{(usage or '').strip()}\n\n{text}")  # none with python -OO
        return
    signal.signal(signal.SIGTERM, _raise_terminated)
    warnings.formatwarning = _format_warning
    # Where it is closed, `print` would write messages to standard output.
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    _escape_unencodable()
    try:
        with contextlib.ExitStack() as stack:
            _parse_arguments(flag_values, stack)
            main()
    except flags.Error as error:
        message = _invalid_value(str(error))
        if isinstance(error, flags.UnrecognizedFlagError):
            message = _unknown_flag(error, flag_values)
        sys.exit(f"error: {InputError(message)}")
    except InputError as error:
        sys.exit(f"error: {error}")
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        sys.exit(f"error: {InputError(f'A file cannot be read or written: {error}')}")
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing was overwritten")


def _escape_unencodable() -> None:
    """Escape characters that the encoding of standard output does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _parse_arguments(
    flag_values: flags.FlagValues, stack: contextlib.ExitStack
) -> None:
    if rest := flag_values(sys.argv)[1:]:
        raise InputError(
            f"{' '.join(rest)!r} must be written as --flag=value, in quotes if the "
            "value has spaces or shell wildcards"
        )
    for name in flag_values:
        _expand_paths(flag_values[name], stack)


def _expand_paths(flag: flags.Flag, stack: contextlib.ExitStack) -> None:
    """Replace ~, - and pipes in the paths of a flag, as no shell does after `=`."""
    items = _items(flag)
    paths = [_expand_path(flag, item, stack) for item in items]
    if flag.name == "input" and paths == [_STDIN]:
        flag.value = None  # of a single file: the default, line by line
    elif paths != items:
        flag.value = paths if isinstance(flag.value, list) else ",".join(paths)


def _expand_path(flag: flags.Flag, path: str, stack: contextlib.ExitStack) -> str:
    if re.match("~[^/]*/", path):
        return os.path.expanduser(path)
    if flag.name in _OUTPUT_FLAGS and path == "-":
        return _STDOUT
    if flag.name not in _DATA_FLAGS:
        return path
    path = _STDIN if path == "-" else path
    if path == _STDIN and sys.stdin is None:
        raise InputError(f"--{flag.name} must be a file, as standard input is closed")
    is_lines = path == _STDIN and not isinstance(flag.value, list)
    if (is_lines and flag.name == "input") or not durable_files.is_stream(path):
        return path
    # A reader may need the start of a file twice.
    copy = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "input")
    with open(path, "rb") as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target)
    return copy


def _invalid_value(error: str) -> str:
    """Return the message of absl about a value as one of this package."""
    match = re.match("flag --([^=]+)=(.*?): (.*)", error, re.DOTALL)
    if match is None:
        return f"{error.rstrip('.')}; --help describes all flags"
    flag, value, reason = match.groups()
    if choices := re.fullmatch("value should be one of <(.*)>", reason):
        names = choices[1].split("|")
        hint = _near(value, names)
        return f"--{flag} must be one of {', '.join(names)}, not {value!r}{hint}"
    if reason.startswith("already defined"):
        return (
            f"--{flag} must be set once, with commas between its values. Received "
            f"a second one: {value!r}"
        )
    for start, kind in _KINDS.items():
        if reason.startswith(start):
            return f"--{flag} must be {kind}, not {value!r}"
    return f"--{flag}={value}: {reason}"


def _near(name: str, names: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def _unknown_flag(
    error: flags.UnrecognizedFlagError, flag_values: flags.FlagValues
) -> str:
    """Return what to pass in place of an unknown flag."""
    argument, name = error.flagvalue, error.flagname.replace("-", "_")
    _, equals, value = argument.partition("=")
    if not equals:
        rest = sys.argv[sys.argv.index(argument) + 1 :] if argument in sys.argv else []
        value = next((v for v in rest[:1] if not v.startswith("-")), "VALUE")
    root = flag_values["set"].root if "set" in flag_values else None
    unknown = f"Unknown flag --{error.flagname}"

    if value in loader.installed():
        return f"{unknown}; pass {shlex.quote(f'--config={value}')}"
    if name in flag_values:
        return f"{unknown}; pass {shlex.quote(f'--{name}={value}')}"
    if setting := root and loader.setting_named(name, root):
        return f"{unknown}; set it with --set {shlex.quote(f'{setting}={value}')}"
    return unknown + (_near(name, flag_values, "--") or "; --help describes all flags")


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised like Ctrl-C so that a command cleans up."""


@contextlib.contextmanager
def resumable(advice: str) -> Iterator[None]:
    """Exit with `advice` when SIGTERM or SIGINT ends a block or function."""
    try:
        yield
    except Terminated:
        exit_on_signal(signal.SIGTERM, advice)
    except KeyboardInterrupt:
        exit_on_signal(signal.SIGINT, advice)


def exit_on_signal(number: int, advice: str) -> NoReturn:
    """Print how to resume, then exit with 128 + the number of the signal."""
    name = signal.Signals(number).name
    print(f"stopped by {name}; run the same command again to resume {advice}")
    sys.stdout.flush()
    sys.exit(128 + number)


def _raise_terminated(*_) -> None:
    raise Terminated
