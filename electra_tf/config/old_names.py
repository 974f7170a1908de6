"""Names of other libraries, and this package's flags and settings for them.

`old_names.yaml` is the only table: commands and configs answer unknown names with it,
and the page "Coming from ..." is made from it.
"""

import functools
import itertools
import pathlib
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import yaml

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import PretrainingConfig

_TABLE = pathlib.Path(__file__).with_suffix(".yaml")
_ROOTS = {"pretrain": PretrainingConfig, "finetune": FinetuningConfig}
_COMMAND = "electra-tf "


class OurName(NamedTuple):
    """A flag, setting, command or Python name of this package."""

    text: str
    """`--tpu`, `training.steps`, `electra-tf convert` or `Encoder.embed`."""
    value: str | None = None
    """The value that has the old name's meaning, or VALUE if it must be chosen."""
    root: type | None = None
    """The class of settings of the only command that it applies to."""

    @property
    def flag(self) -> str | None:
        """The name of the flag, or None."""
        return self.text[2:] if self.text.startswith("--") else None

    @property
    def is_command(self) -> bool:
        """Whether it is a command."""
        return self.text.startswith(_COMMAND)

    @property
    def is_of_commands(self) -> bool:
        """Whether it is a command or a flag."""
        return self.is_command or self.flag is not None

    def applies_to(self, flags: Container[str]) -> bool:
        """Return whether it is one of the flags, or a command."""
        return self.is_command or self.flag in flags

    def is_setting(self, root: type | None) -> bool:
        """Return whether it is a setting of a class."""
        section, _, name = self.text.partition(".")
        fields = getattr(root, "__dataclass_fields__", {})
        return section in fields and name in fields[section].type.__dataclass_fields__


class Row(NamedTuple):
    """Names of another library with one meaning."""

    old: tuple[str, ...]
    ours: tuple[OurName, ...]
    difference: str

    def answer(self, old: str, name: OurName | None) -> str:
        """Return sentences that answer an old name."""
        ours = f"is `{name.text}`" if name else "has no counterpart"
        return f"`{old}` {ours}. {self.difference}".strip(". ")


class Section(NamedTuple):
    """The names of one library or script."""

    title: str
    text: str
    rows: tuple[Row, ...]


@functools.cache
def sections() -> tuple[Section, ...]:
    """Return the table."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    tables = yaml.load(_TABLE.read_text(encoding="utf-8"), Loader=loader)
    return tuple(
        Section(table["title"], table["text"], tuple(map(_row, table["rows"])))
        for table in tables
    )


def find(
    name: str, root: type | None, flags: Container[str] | None = None
) -> tuple[Row, OurName | None] | None:
    """Return the row of an old name, and the first of our names that applies.

    Args:
        name: An old name, with or without dashes.
        root: Class of the settings that the command has, if any.
        flags: The flags of the command; None: a config is read, so settings come first
            and any flag does.

    Returns:
        The row without a name of ours if there is nothing to set, or None if the name
        is unknown or applies to other commands only.
    """
    rows = [row for row in _rows() if _plain(name) in map(_plain, row.old)]
    found = [(row, ours) for row in rows for ours in row.ours]
    found = [(row, ours) for row, ours in found if ours.root in (None, root)]
    settings = [pair for pair in found if pair[1].is_setting(root)]
    if flags is None:
        found = settings + [(row, ours) for row, ours in found if ours.is_of_commands]
    else:
        found = [p for p in found if p in settings or p[1].applies_to(flags)]
    without = ((row, None) for row in rows if not row.ours)
    return next(itertools.chain(found, without), None)


def _rows() -> Iterator[Row]:
    return (row for section in sections() for row in section.rows)


def _plain(name: str) -> str:
    return name.strip("-").replace("-", "_")


def _row(cells: Sequence) -> Row:
    old, ours, difference = cells
    ours = [ours] if isinstance(ours, str) else ours or ()
    return Row(tuple(old.split()), tuple(map(_our_name, ours)), difference)


def _our_name(text: str) -> OurName:
    command, space, rest = text.partition(" ")
    root = _ROOTS.get(command) if space else None
    name, _, value = (rest if root else text).partition("=")
    return OurName(name, value or None, root)
