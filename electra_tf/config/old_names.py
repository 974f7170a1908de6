"""Names of other libraries, and this package's flags and settings for them.

`old_names.yaml` is the only table: commands and configs answer unknown names with it,
and the page "Coming from ..." is made from it.
"""

import functools
import pathlib
from collections.abc import Container
from typing import NamedTuple

import yaml

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import PretrainingConfig

_TABLE = pathlib.Path(__file__).with_suffix(".yaml")
_ROOTS = {"pretrain": PretrainingConfig, "finetune": FinetuningConfig}


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
        return self.text.startswith("electra-tf ")

    def is_setting(self, root: type | None) -> bool:
        """Return whether it is a setting of a class."""
        section, _, name = self.text.partition(".")
        fields = getattr(root, "__dataclass_fields__", {})
        return section in fields and name in fields[section].type.__dataclass_fields__


class OldName(NamedTuple):
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
    rows: tuple[OldName, ...]


@functools.cache
def sections() -> tuple[Section, ...]:
    """Return the table."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    tables = yaml.load(_TABLE.read_text(encoding="utf-8"), Loader=loader)
    found = []
    for table in tables:
        rows = []
        for old, ours, difference in table["rows"]:
            names = [ours] if isinstance(ours, str) else ours or ()
            rows.append(
                OldName(tuple(old.split()), tuple(map(_our_name, names)), difference)
            )
        found.append(Section(table["title"], table["text"], tuple(rows)))
    return tuple(found)


def find(
    name: str, root: type | None, flags: Container[str] | None = None
) -> tuple[OldName, OurName | None] | None:
    """Return the row of an old name, and the first of our names that applies.

    The row has no name of ours if there is nothing to set; None: the name is unknown,
    or applies to other commands only. `root` is the class of the settings that the
    command has, `flags` are its flags; without them a config is read, so settings come
    first and any flag does.
    """
    rows = [
        row
        for section in sections()
        for row in section.rows
        if _plain(name) in map(_plain, row.old)
    ]
    found = [(row, n) for row in rows for n in row.ours if n.root in (None, root)]
    if flags is None:
        found = [pair for pair in found if pair[1].is_setting(root)] + [
            (row, n) for row, n in found if n.is_command or n.flag is not None
        ]
    else:
        found = [
            (row, n)
            for row, n in found
            if n.is_setting(root) or n.is_command or n.flag in flags
        ]
    return next(iter([*found, *((row, None) for row in rows if not row.ours)]), None)


def _plain(name: str) -> str:
    return name.strip("-").replace("-", "_")


def _our_name(text: str) -> OurName:
    command, space, rest = text.partition(" ")
    root = _ROOTS.get(command) if space else None
    name, _, value = (rest if root else text).partition("=")
    return OurName(name, value or None, root)
