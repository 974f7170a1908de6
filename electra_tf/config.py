"""Every setting, as frozen dataclasses: YAML in, YAML out, `--set` overrides.

A config file holds the lines that differ from the defaults below, or from the file
it names with `extends`. Types are strict and unknown keys are errors.
"""

import difflib
import functools
import json
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import Field

from electra_tf.errors import InputError

_settings = functools.partial(
    pydantic.dataclasses.dataclass,
    frozen=True,
    kw_only=True,
    config=pydantic.ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True
    ),
)

Positive = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


@_settings()
class Tokenization:
    """How text becomes pieces; stored with every artefact that holds ids."""

    lower_case: bool = True
    """Lower-case the text first."""
    strip_accents: Literal["lowered", "always", "never"] = "lowered"
    """Which text loses its accents: `lowered` is the original's rule (only text that
    is lower-cased too), `always` also cased text, `never` none."""

    @property
    def strips(self) -> bool:
        """Whether accents go, both settings considered."""
        return self.strip_accents == "always" or (
            self.strip_accents == "lowered" and self.lower_case
        )


@_settings()
class Corpus:
    """How files are read as documents."""

    documents: Literal["blank_line", "file"] = "blank_line"
    """What ends a document of a plain text file. Rows of JSONL, Parquet and TFDS are
    one document each."""
    field: str = "text"
    """The name of the text's field in JSONL, Parquet and TFDS."""
    on_error: Literal["stop", "report"] = "stop"
    """Stop at the first piece of bad input, or go on, count and report them all."""


@_settings()
class VocabularyTraining:
    """How a WordPiece vocabulary is learnt."""

    size: Positive = 30522
    """Entries, special tokens included."""
    min_frequency: Positive = 2
    """Pairs of pieces rarer than this are not merged."""
    character_coverage: Annotated[float, Field(gt=0, le=1)] = 0.9999
    """The most frequent characters that make up this share of the text enter the
    vocabulary; a word with another one becomes [UNK]."""


@_settings()
class Records:
    """How documents become pre-training examples."""

    max_length: Annotated[int, Field(ge=8)] = 128
    """Positions of a record, special tokens and padding included."""
    order: Literal["original", "document"] = "original"
    """`original`: the released builder's packing, which puts later short sentences
    back into segment A and discards what does not fit. `document`: text order is
    kept and every token is used."""
    seed: Seed = 0
    """Decides segment borders and lengths."""
    shards: Annotated[int, Field(gt=0, le=1000)] | None = None
    """Number of files; null: one for each 32 MB of text, 512 at most."""


@_settings()
class Input:
    """How records become batches."""

    batch_size: Positive = 128
    """Rows of a global batch, over all hosts and replicas."""
    seed: Seed = 0
    """Decides the order of the records, anew in each epoch."""
    shuffle_window: Positive = 65536
    """Records that are shuffled among each other at a time."""


@_settings()
class Config:
    """All settings of an experiment."""

    tokenization: Tokenization = Tokenization()
    corpus: Corpus = Corpus()
    vocabulary: VocabularyTraining = VocabularyTraining()
    records: Records = Records()
    input: Input = Input()


def load(
    path: str | None = None,
    sets: Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
    base: Mapping[str, Any] | None = None,
) -> Config:
    """Reads a config: defaults, then files, then `--set`, then explicit flags.

    Args:
        path: A YAML file, or None for the defaults alone.
        sets: Overrides as typed on a command line, `records.max_length=512`.
        overrides: The same by dotted name with values that are already typed.
        base: Values by dotted name that stand where nothing else is said.

    Returns:
        The validated settings.

    Raises:
        InputError: An unknown key (with the nearest known one), a value of another
            type or out of range, a file that cannot be read, a circle of `extends`.
    """
    tree: dict[str, Any] = {}
    for name, value in (base or {}).items():
        _put(tree, name, value)
    tree = _merge(tree, _read_file(pathlib.Path(path), ()) if path else {})
    for item in sets:
        name, equals, value = item.partition("=")
        if not equals:
            raise InputError(
                "--set takes NAME=VALUE", repr(item), "Write --set records.seed=1"
            )
        _put(tree, name.strip(), _parse(value, f"--set {item}"))
    for name, value in (overrides or {}).items():
        _put(tree, name, value)
    return _validate(tree, path or "the command line")


def setting(dotted: str) -> tuple[type, list[str], str, Any]:
    """Returns the type, the choices (if any), the description and the default."""
    section, name = dotted.split(".")
    holder = Config.__dataclass_fields__[section].type
    field = holder.__pydantic_fields__[name]
    schema = pydantic.TypeAdapter(holder).json_schema()["properties"][name]
    # `int | None` is an `anyOf` whose first member is the type.
    kind = schema.get("type") or schema["anyOf"][0]["type"]
    types = {"boolean": bool, "integer": int, "number": float, "string": str}
    default = getattr(holder(), name)
    description = " ".join(field.description.split())
    return types[kind], schema.get("enum", []), description, default


def dump(config: Config) -> str:
    """Writes every setting as YAML that `load` reads back to an equal config."""
    tree = pydantic.TypeAdapter(Config).dump_python(config, mode="json")
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False)


class _Loader(yaml.SafeLoader):
    """PyYAML, but 1e-4 is a number (as in YAML 1.2) and a key given twice an error."""

    def construct_mapping(self, node, deep=False):
        merge = "tag:yaml.org,2002:merge"
        nodes = [key for key, _ in node.value if key.tag != merge]
        keys = [self.construct_object(key, deep=True) for key in nodes]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"the key {key!r} stands twice{node.start_mark}")
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes the words that `_Loader` would take for numbers."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
        list("-+.0123456789"),
    )


def _parse(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(
            f"{source} must be valid YAML", str(error), "Mend that line"
        ) from error


def _read_file(path: pathlib.Path, seen: tuple[pathlib.Path, ...]) -> dict[str, Any]:
    """The tree of one file laid over the file it extends."""
    if path.resolve() in seen:
        raise InputError(
            "`extends` must not run in a circle",
            " -> ".join(map(str, [*seen, path])),
            "Remove one of these lines",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "--config names a readable YAML file", str(error), "Check the path"
        ) from error
    tree = _parse(text, str(path)) or {}
    if not isinstance(tree, dict):
        raise InputError(
            f"{path} must hold `section: {{name: value}}`",
            f"a {type(tree).__name__}",
            "See configs/ for examples",
        )
    base = tree.pop("extends", None)
    if base is None:
        return tree
    if not isinstance(base, str):
        raise InputError(f"{path}: `extends` names one file", repr(base), "Name one")
    return _merge(_read_file(path.parent / base, (*seen, path.resolve())), tree)


def _merge(base: dict[str, Any], difference: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in difference.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both else value
    return merged


def _put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, name = dotted.split(".")
    for section in sections:
        if not isinstance(tree.get(section), dict):
            tree[section] = {}
        tree = tree[section]
    tree[name] = value


def _validate(tree: dict[str, Any], source: str) -> Config:
    # JSON is the strict mode that suits YAML: lists may become tuples, yet no string
    # becomes a number and no number a truth value.
    try:
        text = json.dumps(tree)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{source}: settings are numbers, words, lists and truth values",
            str(error),
            "Quote what YAML takes for a date",
        ) from error
    try:
        return pydantic.TypeAdapter(Config).validate_json(text)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False)
        problems = [_describe(item) for item in found]
        raise InputError(
            f"{source}: every setting is known and of its type",
            "; ".join(problem for problem, _ in problems),
            ". ".join(dict.fromkeys(remedy for _, remedy in problems)),
        ) from error


def _describe(item: Mapping[str, Any]) -> tuple[str, str]:
    """One validation error as (what arrived, what to do)."""
    *path, name = [str(part) for part in item["loc"]] or ["(the whole file)"]
    dotted = ".".join([*path, name])
    if item["type"] != "unexpected_keyword_argument":
        message = item["msg"].replace("Input should", "must")
        return f"`{dotted}` {message}, not {item['input']!r}", "Change the value"
    section: Any = Config
    for part in path:
        section = section.__dataclass_fields__[part].type
    known = list(section.__dataclass_fields__)
    near = difflib.get_close_matches(name, known, n=1)
    everywhere = [
        f"{part}.{field}"
        for part, holder in Config.__dataclass_fields__.items()
        for field in holder.type.__dataclass_fields__
        if field == name
    ]
    guess = near[0] if near else everywhere[0] if everywhere else None
    hint = f"Did you mean `{guess}`?" if guess else f"Known: {', '.join(known)}"
    return f"unknown key `{dotted}`", hint
