"""Names of other libraries lead to flags, settings and functions that exist."""

import functools
import importlib

import keras
import pytest

import electra_tf
from electra_tf.__main__ import COMMANDS
from electra_tf.config import loader, old_names
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError

ROOTS = {PretrainingConfig: "pretrain", FinetuningConfig: "finetune"}


@functools.cache
def all_flags():
    modules = [importlib.import_module(f"electra_tf.{name}") for name in COMMANDS]
    return {name: module.FLAGS for name, module in zip(COMMANDS, modules, strict=True)}


def exists(name):
    commands = [ROOTS[name.root]] if name.root else COMMANDS
    if name.flag:
        return any(name.flag in all_flags()[command] for command in commands)
    if name.is_command:
        return name.text.removeprefix("electra-tf ") in COMMANDS
    roots = [name.root] if name.root else ROOTS
    if any(name.is_setting(root) for root in roots):
        return True
    library, _, path = name.text.partition("keras.")
    value = keras if path else electra_tf
    for part in (path or library).split("."):
        fields = getattr(value, "__dataclass_fields__", {})
        value = fields.get(part) or getattr(value, part)  # or an error
    return True


def test_our_names_exist_and_their_values_are_accepted():
    rows = (row for section in old_names.sections() for row in section.rows)
    for name in (name for row in rows for name in row.ours):
        assert exists(name), name.text
        if name.value in (None, "VALUE"):
            continue
        flags = [values for values in all_flags().values() if name.flag in values]
        roots = [root for root in ROOTS if name.is_setting(root)]
        assert flags if name.flag else roots, name.text
        for values in flags if name.flag else ():
            values[name.flag].parser.parse(name.value)
        for root in () if name.flag else roots:
            loader.load_config(None, [f"{name.text}={name.value}"], root=root)


def test_an_old_name_has_one_row_in_a_section():
    for section in old_names.sections():
        names = [name for row in section.rows for name in row.old]
        assert len(names) == len(set(names)), section.title


@pytest.mark.parametrize(
    ("root", "item", "words"),
    [
        (PretrainingConfig, "num_train_steps=9", "`num_train_steps` is `training.ste"),
        (PretrainingConfig, "training.num_train_steps=9", "`training.steps`"),
        (PretrainingConfig, "model.hidden_size=9", "`hidden_size` is `model.width`"),
        (PretrainingConfig, "use_tpu=true", "`use_tpu` is `--tpu`"),
        (PretrainingConfig, "max_seq_length=64", "is `records.max_length`"),
        (FinetuningConfig, "max_seq_length=64", "is `data.max_length`"),
        (FinetuningConfig, "training.lr=1e-4", "`lr` is `optimizer.learning_rate`"),
        (FinetuningConfig, "training.warmup_ratio=0.1", "`optimizer.warmup_share`"),
        (FinetuningConfig, "log_examples=true", "`log_examples` has no counterpart"),
    ],
)
def test_old_names_of_settings_are_answered(root, item, words):
    with pytest.raises(InputError) as error:
        loader.load_config(None, [item], root=root)
    assert words in str(error.value)
