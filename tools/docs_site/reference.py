"""Pages of the reference: flags from the commands' parsers, settings from dataclasses.

Imported by the hook of MkDocs; the pages are not stored.
"""

import importlib
import json
import re
from collections.abc import Mapping
from typing import Any

import pydantic
from absl import flags

from electra_tf.__main__ import COMMANDS
from electra_tf.config.fields import classes_of, description_of
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.training.run_directory import RESUME_SAFE_FIELDS

_COMMANDS = """\
# Commands

Every command is `electra-tf COMMAND --flag=value ...`. `electra-tf COMMAND --help`
prints what this page lists. `--flagfile=PATH` reads flags from a file, one on a line.

A flag that is `--[no]NAME` is a switch: `--NAME` turns it on, `--noNAME` off.
"""
_SETTINGS = """\
# Settings

A setting is named `section.name`. Its value is taken from the first of these places
that has it:

1. a flag of its own (see [Commands](commands.md)),
2. `--set section.name=value`,
3. the file or name given with `--config`,
4. the default.

A config file contains only what differs from the defaults, or from the config that it
names with `extends`:

```yaml
extends: small
training:
  precision: mixed_bfloat16
```

Values have fixed types. An unknown name is an error that names the nearest known one.
"""
_PRETRAINING = """
## Pre-training

Settings of `build_vocab`, `build_records` and `pretrain`.
"""
_FINETUNING = """
## Fine-tuning

Settings of `finetune`, and of `from_preset(settings=...)` in Python. The published
epochs and length of a task replace these defaults; `--config` and `--set` replace both.
"""
_TYPES = {"boolean": "bool", "integer": "int", "number": "float", "string": "str"}
_BOUNDS = {
    "exclusiveMinimum": ">",
    "minimum": ">=",
    "exclusiveMaximum": "<",
    "maximum": "<=",
}

Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    """Return the Markdown of each page by its path below docs/."""
    return {
        "reference/commands.md": "".join((_COMMANDS, *map(_command, COMMANDS))),
        "reference/settings.md": "".join(
            (
                _SETTINGS,
                _PRETRAINING,
                _sections(PretrainingConfig),
                _FINETUNING,
                _sections(FinetuningConfig),
            )
        ),
    }


def with_settings_on_resume(markdown: str) -> str:
    """Return a page with lists of settings in place of its two comments."""
    lists: dict[bool, list[str]] = {True: [], False: []}
    for section, field in PretrainingConfig.__dataclass_fields__.items():
        names = {
            key for kind in classes_of(field.type) for key in kind.__dataclass_fields__
        }
        for name in sorted(f"{section}.{key}" for key in names):
            may_change = {section, name} & (RESUME_SAFE_FIELDS | {"training.steps"})
            lists[bool(may_change)].append(f"`{name}`")
    for comment, names in (("may change", lists[True]), ("must stay", lists[False])):
        markdown = markdown.replace(
            f"<!-- settings that {comment} -->", ", ".join(names) + "."
        )
    return markdown


def _command(name: str) -> str:
    module = importlib.import_module(f"electra_tf.{name}")
    parts = [f"\n## {name}\n", *map(_paragraph, module.__doc__.strip().split("\n\n"))]
    values = getattr(module, "FLAGS", ())
    if rows := [_flag(values[flag]) for flag in values]:
        parts += ["| flag | default | meaning |\n|---|---|---|\n" + "".join(rows)]
    return "\n".join(parts)


def _paragraph(text: str) -> str:
    """Return a paragraph of a docstring, with a command line as a block of code."""
    is_code = re.match(r"(echo|electra-tf) ", text)
    return f"```\n{text}\n```\n" if is_code else f"{text}\n"


def _flag(flag: flags.Flag) -> str:
    label = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    given = flag.default not in (None, "", [], False)
    default = f"`{flag.default_as_str.strip(chr(39))}`" if given else ""
    # absl begins the text of a choice with its values in angle brackets.
    text = re.sub(r"^<([^>]*)>: ", "", flag.help)
    if choices := getattr(flag.parser, "enum_values", None):
        text += f" One of {', '.join(f'`{value}`' for value in choices)}."
    return f"| `{label}` | {default} | {_text(text)} |\n"


def _sections(config: type) -> str:
    schemas = pydantic.TypeAdapter(config).json_schema()["$defs"]
    return "".join(
        _section(name, kind, schemas[kind.__name__])
        for name, field in config.__dataclass_fields__.items()
        for kind in classes_of(field.type)
    )


def _section(name: str, kind: type, schema: Schema) -> str:
    fields = schema["properties"]
    rows = [
        f"| `{key}` | {_type(value)} | {_value(value['default'])} | "
        f"{_text(description_of(kind, key))} |\n"
        for key, value in fields.items()
    ]
    # One of several classes, such as the objectives, is named by its `name`.
    choice = fields.get("name", {}).get("const")
    heading = f"`{name}` of `{choice}`" if choice else f"`{name}`"
    summary = schema["description"].split("\n")[0]
    return (
        f"\n### {heading}\n\n{summary}\n\n"
        "| setting | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows)
    )


def _type(schema: Schema) -> str:
    """Return a type with the limits of its values."""
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{value}`" for value in values)
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if schema["type"] == "array":
        items = schema.get("items") or schema["prefixItems"][0]
        return f"list of {_type(items)}"
    limits = [
        f"{sign} {'2^63' if schema[key] == 2**63 else schema[key]}"
        for key, sign in _BOUNDS.items()
        if key in schema
    ]
    name = _TYPES.get(schema["type"], f"`{schema['type']}`")
    return f"{name} {', '.join(limits)}".strip()


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"`{entry}`" for entry in value) or "none"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _text(description: str) -> str:
    return " ".join(description.split()).replace("|", "\\|")
