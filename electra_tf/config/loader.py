"""Read and write settings as YAML, with `--set` overrides.

A config file contains the settings that differ from the defaults, or from the config
in its `extends`. Configs are given by path, or by name if installed with this package.
"""

import copy
import dataclasses
import difflib
import json
import os
import pathlib
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import pydantic
import yaml

from electra_tf.config.ended_settings import drop_ended
from electra_tf.config.fields import classes_of, description_of
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.objectives import OBJECTIVE_SETTINGS, drop_foreign
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError, format_list, join_first

Root = TypeVar("Root")
_PATHS = str | os.PathLike

_MAX_CHARACTERS, _MAX_DEPTH = 2**20, 100  # of a config
_MAX_ERRORS = 10  # described in a message
_UNKNOWN = "unexpected_keyword_argument"  # pydantic's type of this error
# Kinds of configs, each with what it configures and an example.
_KINDS = {
    PretrainingConfig: ("pre-training", "small"),
    FinetuningConfig: ("fine-tuning", "finetune_small"),
}
_PACKAGE = pathlib.Path(__file__).parents[1]
# A wheel contains configs inside the package, a checkout beside it.
_FOLDERS = _PACKAGE / "configs", _PACKAGE.parent / "configs"
_STORED = "config.yaml"  # name of the configs beside records, checkpoints and models
_INSTALLED = next(filter(pathlib.Path.is_dir, _FOLDERS), _FOLDERS[0])


def installed(root: type | None = None) -> list[str]:
    """Return the names of the installed configs, of one class of settings or of all.

    `ablations/` is part of a name.
    """
    names = sorted(
        path.relative_to(_INSTALLED).with_suffix("").as_posix()
        for path in _INSTALLED.rglob("*.yaml")
    )
    is_finetuning = root is FinetuningConfig
    return [n for n in names if not root or n.startswith("finetune") == is_finetuning]


def load_config(
    path: str | os.PathLike | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    root: type[Root] = PretrainingConfig,
    base: Mapping[str, Any] | None = None,
) -> Root:
    """Read a config: defaults, then files, then `overrides`.

    Args:
        path: YAML file or name of an installed config (`tiny`); a file has precedence.
            None: the defaults.
        overrides: Strings, `records.max_length=512`, or a dictionary by dotted names or
            by section.
        root: Class of the settings: `PretrainingConfig` or `FinetuningConfig`.
        base: Values by dotted name that replace defaults.

    Returns:
        The validated settings.

    Raises:
        InputError: An unknown key, a value of a wrong type or out of range, an
            unreadable file, a cycle of `extends`, or a file of another kind than
            `root`.

    Example:
        import electra_tf

        config = electra_tf.load_config("small", ["records.max_length=128"])
        root = electra_tf.FinetuningConfig
        tuning = electra_tf.load_config("finetune_small", root=root)
    """
    if not isinstance(path, _PATHS | None):
        raise InputError(
            "path must be the name of a config or the path of a file, not "
            f"{type(path).__name__} {path!r:.60}"
        )
    if not isinstance(overrides, Mapping):
        overrides = parse_sets(overrides)
    file = _read_file(_find(os.fspath(path)), ()) if path else {}
    tree = _override(_override(_tree(base or {}), file), _tree(flatten(overrides)))
    sources = [str(path)] if path else []
    sources += ["the given settings"] if overrides or not path else []
    try:
        return _validate(tree, " and ".join(sources), root)
    except InputError:
        _check_kind(file, path, root)
        raise


def parse_sets(sets: Iterable[str]) -> dict[str, Any]:
    """Return the values of strings such as `records.max_length=512` by dotted name."""
    values = {}
    for item in sets:
        name, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"--set must be NAME=VALUE, not {item!r}")
        values[name.strip()] = _parse(value, f"--set {item}")
    return values


def to_config(
    settings: Any,
    root: type[Root],
    base: Root | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Root:
    """Return settings in any form that an argument `settings` may have.

    It may be a config; the name or path of one; a dictionary by dotted names or by
    section; None: `base`, which replaces the defaults. `overrides` replace the rest.
    """
    if isinstance(settings, root):
        base, settings = settings, None
    if isinstance(settings, Mapping):
        overrides, settings = flatten(settings) | dict(overrides or {}), None
    if settings is not None and not (isinstance(settings, _PATHS) and str(settings)):
        purpose, example = _KINDS[root]
        raise InputError(
            f"settings must be a dictionary by names, a config of {purpose} such as "
            f"{example!r}, its path, or a {root.__name__}, not "
            f"{type(settings).__name__} {settings!r:.60}"
        )
    values = {} if base is None else flatten(dataclasses.asdict(base))
    return load_config(settings, overrides or {}, root, values)


def setting_named(name: str, root: type) -> str | None:
    """Return the dotted name of a setting, in `training` if several have its name."""
    sections = root.__dataclass_fields__
    for section in sorted(sections, key=lambda section: section != "training"):
        kinds = classes_of(sections[section].type)
        if any(name in kind.__dataclass_fields__ for kind in kinds):
            return f"{section}.{name}"
    return None


def flatten(tree: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the values of sections by dotted name; such names stay as they are."""
    values: dict[str, Any] = {}
    for section, value in tree.items():
        is_section = isinstance(value, Mapping) and "." not in str(section)
        for name, item in value.items() if is_section else [(None, value)]:
            # NumPy's numbers as Python's.
            item = item.item() if getattr(item, "ndim", None) == 0 else item
            values[str(section) if name is None else f"{section}.{name}"] = item
    return values


def given_names(path: str | None) -> set[str]:
    """Return the dotted names of the settings that a file contains."""
    return {*flatten(_read_file(_find(path), ()))} if path else set()


def parse_config(text: str, source: str, root: type[Root] = PretrainingConfig) -> Root:
    """Read a stored config, the output of `dump_config`; errors name the source."""
    return stored_config(_parse(text, source) or {}, source, root)


def stored_config(tree: Any, source: str, root: type[Root]) -> Root:
    """Return stored settings by section as a config; errors name the source.

    Settings that ended are ignored if they have their former default.
    """
    tree = copy.deepcopy(tree)
    if isinstance(tree, dict):
        drop_ended(tree, source)
    return _validate(tree, source, root)


def describe_field(
    dotted: str, root: type = PretrainingConfig
) -> tuple[type, list[str], str, Any]:
    """Return the type, the choices (if any), the description and the default."""
    section, name = dotted.split(".")
    kinds = classes_of(root.__dataclass_fields__[section].type)
    holder = next(kind for kind in kinds if name in kind.__dataclass_fields__)
    schema = pydantic.TypeAdapter(holder).json_schema()["properties"][name]
    # `int | None` is an `anyOf` whose first member is the type.
    schema = schema["anyOf"][0] if "anyOf" in schema else schema
    types = {"boolean": bool, "integer": int, "number": float, "string": str}
    kind = types.get(schema["type"], tuple)
    description = " ".join(description_of(holder, name).split())
    return kind, schema.get("enum", []), description, getattr(holder(), name)


def dump_config(config: Any) -> str:
    """Return all settings as YAML, which `parse_config` reads to an equal config."""
    tree = pydantic.TypeAdapter(type(config)).dump_python(config, mode="json")
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Loader with the core schema of YAML 1.2 that rejects duplicate keys.

    010 is ten and 1e-4 a number; 1:30, 1_000, dates, on, off, yes and no are strings.
    """

    yaml_implicit_resolvers: ClassVar = {}

    def construct_mapping(self, node, deep=False):
        keys = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.YAMLError(f"a list or mapping as key{key_node.start_mark}")
            if key in keys:
                raise yaml.YAMLError(f"duplicate key {key!r}{key_node.start_mark}")
            keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_integer(self, node):
        is_prefixed = node.value[1:2] in ("o", "x")
        return int(node.value, 0 if is_prefixed else 10)


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes strings that `_Loader` would read as another type."""


_CORE_SCHEMA = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
for _class in (_Loader, _Dumper):
    for _tag, _pattern in _CORE_SCHEMA.items():
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), None
        )
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_integer)


def _parse(text: str, source: str) -> Any:
    """Parse YAML, unless it could take all memory or the whole stack.

    A few lines of aliases can describe a tree of billions of values. `yaml.load` in C
    descends recursively, without a limit of its own; `yaml.parse` does not.
    """
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError(f"more than {_MAX_CHARACTERS:,} characters")
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"an alias (*){event.start_mark}")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise ValueError(f"more than {_MAX_DEPTH} levels{event.start_mark}")
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{source} must be valid YAML: {error}") from error


def _read_file(path: pathlib.Path, seen: tuple[pathlib.Path, ...]) -> dict[str, Any]:
    """Read a file and merge it into the file that it extends."""
    resolved = pathlib.Path(os.path.realpath(path)) if "\0" not in str(path) else path
    if resolved in seen:
        files = " -> ".join(map(str, [*seen, path]))
        raise InputError(f"`extends` must not form a cycle: {files}")
    try:
        if os.path.exists(path) and not path.is_file():
            raise OSError("no regular file")  # a pipe or a device may never end
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:  # not UTF-8, or a NUL in the path
        name = path.name.removesuffix(".yaml")
        near = difflib.get_close_matches(name, installed(), n=1)
        local = pathlib.Path("configs", f"{path}.yaml")
        if os.path.exists(local):  # False for a name that is too long
            near = [str(local)]
        hint = f"did you mean {near[0]!r}?" if near else ", ".join(installed())
        if os.path.exists(path):
            raise InputError(f"{path} must be a YAML file in UTF-8: {error}") from error
        raise InputError(
            f"{str(path)!r} is neither a file nor the name of an installed config: "
            f"{hint}"
        ) from error
    tree = _parse(text, str(path)) or {}
    if not isinstance(tree, dict):
        raise InputError(
            f"{path} must hold `section: {{name: value}}`, not a {type(tree).__name__}"
        )
    if path.name == _STORED:
        drop_ended(tree, str(path))
    base = tree.pop("extends", None)
    if base is None:
        return tree
    if not isinstance(base, str):
        raise InputError(f"{path}: `extends` must be one path or name, not {base!r}")
    return _override(_read_file(_find(base, path.parent), (*seen, resolved)), tree)


def _find(name: str, folder: pathlib.Path | None = None) -> pathlib.Path:
    """Return the path relative to `folder`, or that of the installed config."""
    path = (folder or pathlib.Path()) / name
    is_file = os.path.exists(path) and not os.path.isdir(path)
    if not is_file and name in installed():
        return _INSTALLED / f"{name}.yaml"
    return path


def _override(base: dict[str, Any], difference: dict[str, Any]) -> dict[str, Any]:
    """Merge settings into others; a new objective ends the defaults of the former."""
    sections = [tree.get("objective") for tree in (base, difference)]
    if all(isinstance(section, dict) and section for section in sections):
        former, new = sections
        former = former | {"name": new.get("name", former.get("name", "electra"))}
        drop_foreign(former)
        base = base | {"objective": former}
    return _merge(base, difference)


def _merge(base: dict[str, Any], difference: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in difference.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both else value
    return merged


def _tree(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted name as nested dictionaries."""
    tree: dict[str, Any] = {}
    for dotted, value in values.items():
        *sections, name = dotted.split(".")
        inner = tree
        for section in sections:
            if not isinstance(inner.get(section), dict):
                inner[section] = {}
            inner = inner[section]
        inner[name] = value
    return tree


def _validate(tree: dict[str, Any], source: str, root: type[Root]) -> Root:
    # Strict validation of JSON converts lists to tuples, but neither strings to numbers
    # nor numbers to booleans.
    try:
        text = json.dumps(tree)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{source}: settings must be numbers, strings, lists and booleans: {error}"
        ) from error
    try:
        return pydantic.TypeAdapter(root).validate_json(text)
    except pydantic.ValidationError as error:
        items = error.errors(include_url=False)
        descriptions = (_describe(item, root) for item in items)
        text = join_first(descriptions, _MAX_ERRORS, "; ")
        raise InputError(f"{source}: {text}") from error


def _check_kind(tree: dict[str, Any], path: object, root: type) -> None:
    """Raise an error for a file that has all its settings in another class alone."""
    unknown = _unknown_names(tree, root)
    for kind, (purpose, _) in _KINDS.items():
        if unknown and not _unknown_names(tree, kind):
            wanted, example = _KINDS[root]
            raise InputError(
                f"{path} must be a config of {wanted}, such as {example}, not of "
                f"{purpose}, with {format_list(unknown, 3)}"
            )


def _unknown_names(tree: dict[str, Any], root: type) -> list[str]:
    """Return the dotted names of the settings in a tree that a class does not have."""
    try:
        _validate(tree, "", root)
    except InputError as error:
        items = getattr(error.__cause__, "errors", list)()
        unknown = (i["loc"] for i in items if i["type"] == _UNKNOWN)
        return [".".join(map(str, place)) for place in unknown]
    return []


def _describe(item: Mapping[str, Any], root: type) -> str:
    """Return what is wrong with a setting, and the name that may be meant."""
    section, *rest = [str(part) for part in item["loc"]] or ["(the whole file)"]
    kinds = classes_of(getattr(root.__dataclass_fields__.get(section), "type", root))
    kind = kinds[0]
    if len(kinds) > 1 and rest:
        kind = OBJECTIVE_SETTINGS[rest.pop(0)]  # the location has the objective's name
    *path, name = section, *rest
    dotted = ".".join([*path, name])
    if item["type"] == "value_error":  # two settings contradict each other
        return (f"`{dotted}`: " if item["loc"] else "") + str(item["ctx"]["error"])
    if item["type"] == "union_tag_invalid":
        names = item["ctx"]["expected_tags"]
        return f"`{dotted}.name` must be one of {names}, not {item['ctx']['tag']!r}"
    if item["type"] != _UNKNOWN:
        message = item["msg"].replace("Input should", "must")
        return f"`{dotted}` {message}, not {item['input']!r}"
    known = list((kind if rest else root).__dataclass_fields__)
    if owners := [one.name for one in kinds if name in one.__dataclass_fields__]:
        return (
            f"`{section}`: `{name}` must be left out with `name: {kind.name}`: only "
            f"`name: {' or '.join(owners)}` has it"
        )
    near = difflib.get_close_matches(name, known, n=1)
    guess = ".".join([*path, *near]) if near else setting_named(name, root)
    hint = f"did you mean `{guess}`?" if guess else f"known: {', '.join(known)}"
    return f"unknown key `{dotted}`: {hint}"
