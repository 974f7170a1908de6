"""Turn flags into a config and errors into one paragraph, for every command.

Each command imports this module first.
"""

import gc
import importlib.abc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from electra_tf import backend, cpp_log
from electra_tf.config import loader
from electra_tf.errors import InputError

# Before a command imports TensorFlow, which reads it then and never again. Where no
# NVIDIA driver is, its errors (level 2) begin with one that only says so.
_HAS_DRIVER = any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if _HAS_DRIVER else "3")

# A command overrules keras.json; a variable that is set to something else is an error.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
try:
    backend.check()
except ImportError as error:
    sys.exit(f"error: {error}")


class _Spared(importlib.abc.MetaPathFinder):
    """Hide optional packages from TensorFlow and Keras while these are imported.

    They import scikit-learn and others wherever these are installed, for functions that
    no command uses. All other modules, and any import after that, find them.
    """

    _PACKAGES = frozenset({"cv2", "jax", "matplotlib", "pandas", "sklearn"})

    def find_spec(self, name, path=None, target=None):
        if name in self._PACKAGES and any(map(_begun, ("keras", "tensorflow"))):
            raise ModuleNotFoundError(f"{name} is not imported at the start", name=name)


def _begun(name: str) -> bool:
    """Return whether a module's import has begun and has not ended."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return getattr(spec, "_initializing", False)


sys.meta_path.insert(0, _Spared())


def define_input_flags(
    flag_values: flags.FlagValues, purposes: Mapping[str, str]
) -> None:
    """Adds flags that name text.

    Args:
        flag_values: The command's own flags.
        purposes: From a flag's name to what the text is for.
    """
    for name, purpose in purposes.items():
        flags.DEFINE_list(
            name,
            None,
            f"{purpose}: files, globs and tfds:NAME[@SPLIT], separated by commas. "
            "Plain text and rows of .jsonl, .ndjson or .json, also as .gz or .xz, and "
            "rows of .parquet.",
            flag_values=flag_values,
        )


def define_config_flags(
    flag_values: flags.FlagValues,
    names: Mapping[str, str],
    root: type = loader.PretrainingConfig,
) -> None:
    """Adds `--config`, `--set` and flags for the settings that are used most.

    Args:
        flag_values: The command's own flags.
        names: From a flag's name to the dotted name of the setting it overrides;
            its type, help and default are the setting's.
        root: The settings there are.
    """
    flags.DEFINE_string(
        "config",
        None,
        "A YAML file of settings, or the name of an installed one: "
        f"{', '.join(loader.installed())}.",
        flag_values=flag_values,
    )
    flags.DEFINE_multi_string(
        "set",
        [],
        "A setting, --set section.name=value. It wins over --config's; flags of their "
        "own win over it. The sections' names stand in "
        f"{root.__module__.replace('.', '/')}.py",
        flag_values=flag_values,
    )
    for flag, dotted in names.items():
        kind, choices, text, default = loader.describe_field(dotted, root)
        if choices:
            flags.DEFINE_enum(flag, default, choices, text, flag_values=flag_values)
        else:
            _DEFINE[kind](flag, default, text, flag_values=flag_values)


def define_device_flags(flag_values: flags.FlagValues, names: Sequence[str]) -> None:
    """Adds flags that name devices.

    Args:
        flag_values: The command's own flags.
        names: The strategies there are, the default first.
    """
    flags.DEFINE_enum(
        "strategy", names[0], names, "Which devices train together.",
        flag_values=flag_values,
    )  # fmt: skip
    flags.DEFINE_flag(
        _NameOrAlone(
            "tpu", "local", "A TPU, as --tpu=NAME; --tpu alone is this machine's own."
        ),
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "cpu_replicas",
        1,
        "Replicas the CPU is split into for --strategy=mirrored without GPUs, to try "
        "distribution out.",
        lower_bound=1,
        flag_values=flag_values,
    )


class _NameOrAlone(flags.Flag):
    """A flag with a name as its value, which may also stand alone."""

    def __init__(self, name: str, alone: str, text: str):
        # A boolean one, so that absl lets it stand without a value.
        super().__init__(flags.ArgumentParser(), None, name, None, text, boolean=True)
        self._alone = alone

    def _parse(self, argument):
        spoken = {"true": self._alone, "false": None}
        return spoken.get(argument, argument)


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
    """Reads the config, with the flags that were given laid over it.

    Args:
        flag_values: Parsed flags, `--config` and `--set` among them.
        names: As `define_config_flags` was given.
        base: Values by dotted name that stand where nothing else is said.
        root: The settings there are.

    Returns:
        The resolved settings.
    """
    given = {
        dotted: flag_values[flag].value
        for flag, dotted in names.items()
        if flag_values[flag].present
    }
    return loader.load_config(flag_values.config, flag_values.set, given, base, root)


def is_given(
    flag_values: flags.FlagValues,
    flag: str,
    names: Mapping[str, str],
    base: Mapping[str, Any] | None = None,
) -> bool:
    """Returns whether a setting is given by a flag, `--set`, `--config` or the base.

    Args:
        flag_values: Parsed flags, `--config` and `--set` among them.
        flag: The setting's own flag.
        names: As `define_config_flags` was given.
        base: As `resolve` was given.
    """
    named = loader.given_names(flag_values.config, flag_values.set)
    return flag_values[flag].present > 0 or names[flag] in {*named, *(base or {})}


def warn(lines: Iterable[str]) -> None:
    """Prints one line of warning each on standard error."""
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)


def require(flag_values: flags.FlagValues, *names: str) -> None:
    """Raises an InputError that lists the flags among `names` that were not given."""
    missing = [f"--{name}" for name in names if not flag_values[name].value]
    if missing:
        raise InputError(
            f"This command takes {', '.join(f'--{name}' for name in names)}",
            f"no {' and no '.join(missing)}",
            "Run with --help for all flags",
        )


def run(main: Callable[[], None], flag_values: flags.FlagValues, usage: str) -> None:
    """Parses the command line into `flag_values`, then calls `main`.

    Exits with 1 and one paragraph on standard error for an `InputError`, an error of
    the operating system (a full disk, a missing permission) or a wrong flag.

    Args:
        main: The command; it reads its flags from `flag_values`.
        flag_values: The command's own flags.
        usage: What `--help` prints above the flags.
    """
    if {"--help", "-help", "-h"} & set(sys.argv[1:]):
        # Without absl's headings, which name the modules that define the flags.
        lines = flag_values.get_help().splitlines()
        text = "\n".join(line for line in lines if line.startswith(" "))
        print(f"{usage.strip()}\n\n{text}")
        return
    signal.signal(signal.SIGTERM, _interrupt)
    cpp_log.apply_level()
    # What was imported stays to the end, and searching it for garbage takes seconds.
    gc.freeze()
    try:
        rest = flag_values(sys.argv)
        if len(rest) > 1:
            raise InputError(
                "Everything is given as --flag=value",
                f"the bare words {' '.join(rest[1:])!r}",
                "Put quotes around a value with spaces or shell wildcards",
            )
        main()
    except flags.Error as error:
        rule = "Flags and their values are as --help shows"
        sys.exit(f"error: {InputError(rule, str(error), 'Run with --help')}")
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        rule, remedy = "Files can be read and written", "Check the path and the disk"
        sys.exit(f"error: {InputError(rule, str(error), remedy)}")
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing was overwritten")


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends the command as Ctrl-C does, so that it cleans up behind itself."""


def _interrupt(*_) -> None:
    raise Terminated
