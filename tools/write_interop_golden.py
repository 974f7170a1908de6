#!/usr/bin/env python3
"""Write tests/golden/interop with the other libraries themselves.

Run it in an environment with torch, transformers and keras_hub, then in one with
tf-models-official:

    python tools/write_interop_golden.py huggingface huggingface_odd \\
        huggingface_heads keras_hub
    python tools/write_interop_golden.py model_garden
"""

import json
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

GOLDEN = pathlib.Path(__file__).parents[1] / "tests" / "golden" / "interop"
WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "##s"
]  # fmt: skip
INPUTS = {
    "token_ids": np.array([[2, 7, 30, 12, 31, 3, 0, 0], [2, 8, 9, 10, 11, 12, 13, 3]]),
    "segment_ids": np.array([[0, 0, 0, 1, 1, 1, 0, 0], [0] * 4 + [1] * 4]),
    "padding_mask": np.array([[1] * 6 + [0] * 2, [1] * 8]),
}
# Nine heads, another epsilon and a generator of another width and head size.
SHAPE = {
    "vocab_size": len(WORDS), "num_hidden_layers": 2, "max_position_embeddings": 16,
    "embedding_size": 20, "initializer_range": 0.3, "layer_norm_eps": 1e-5,
}  # fmt: skip
# What published config.json files lack, or write as a string.
ODD_CONFIG = {
    "model_type": None, "layer_norm_eps": None, "architectures": None,
    "attention_probs_dropout_prob": None, "generator_size": "0.25",
}  # fmt: skip
DISCRIMINATOR = {"hidden_size": 36, "num_attention_heads": 9, "intermediate_size": 48}
GENERATOR = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 40}


def huggingface() -> None:
    import torch
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    torch.manual_seed(0)
    pair = {
        "discriminator": ElectraForPreTraining(ElectraConfig(**SHAPE, **DISCRIMINATOR)),
        "generator": ElectraForMaskedLM(ElectraConfig(**SHAPE, **GENERATOR)),
    }
    for model in pair.values():
        _draw_biases(model)
    tables = pair["discriminator"].electra.embeddings.state_dict()
    pair["generator"].electra.embeddings.load_state_dict(tables)
    for role, model in pair.items():
        folder = GOLDEN / f"huggingface_{role}"
        model.save_pretrained(folder)
        _write_vocabulary(folder / "vocab.txt")
        output = _call(model)
        hidden = np.stack([states.numpy() for states in output.hidden_states[1:]])
        np.savez(folder / "outputs.npz", logits=output.logits.numpy(), hidden=hidden)
    head = pair["discriminator"].discriminator_predictions.state_dict()
    head["half"] = head["dense.bias"].to(torch.bfloat16)
    torch.save(head, GOLDEN / "zip.bin")
    torch.save(head, GOLDEN / "legacy.bin", _use_new_zipfile_serialization=False)
    np.savez(GOLDEN / "bin.npz", **{n: t.float().numpy() for n, t in head.items()})


def huggingface_odd() -> None:
    """Write outputs of every layer of the pair, with its config and with an odd one."""
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    classes = {"discriminator": ElectraForPreTraining, "generator": ElectraForMaskedLM}
    for role, cls in classes.items():
        folder, arrays = GOLDEN / f"huggingface_{role}", {}
        for case, changes in (("given", {}), ("odd", ODD_CONFIG)):
            with tempfile.TemporaryDirectory() as copy:
                shutil.copytree(folder, copy, dirs_exist_ok=True)
                _change_config(pathlib.Path(copy, "config.json"), changes)
                output = _call(cls.from_pretrained(copy).eval())
            hidden = [states.numpy() for states in output.hidden_states]
            arrays |= {f"{case}_hidden": hidden, f"{case}_logits": output.logits}
        np.savez(folder / "layers.npz", **arrays)


def huggingface_heads() -> None:
    """Write a classifier and a model of multiple choice."""
    import torch
    import transformers

    sizes = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 16}
    shape = {**SHAPE, **sizes, "num_hidden_layers": 1}
    names = {"id2label": dict(enumerate(["neg", "none", "pos"]))}
    names["label2id"] = {label: n for n, label in names["id2label"].items()}
    extra = {"classifier": {**names, "classifier_dropout": 0.25}, "choice": {}}
    heads = {"classifier": "ForSequenceClassification", "choice": "ForMultipleChoice"}
    for head, suffix in heads.items():
        torch.manual_seed(0)
        config = transformers.ElectraConfig(**shape, **extra[head])
        model = getattr(transformers, f"Electra{suffix}")(config)
        _draw_biases(model)
        folder = GOLDEN / f"huggingface_{head}"
        model.save_pretrained(folder)
        _write_vocabulary(folder / "vocab.txt")
        logits = _call(model, choices=head == "choice").logits.numpy()
        np.savez(folder / "outputs.npz", logits=logits)


def _draw_biases(model: Any) -> None:
    """Prepare a PyTorch model for outputs to which all of its weights contribute."""
    import torch

    for name, weight in model.eval().named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.3)


def _call(model: Any, choices: bool = False) -> Any:
    """Return the outputs of a model; `choices`: the rows are those of one example."""
    import torch

    names = ("input_ids", "token_type_ids", "attention_mask")
    inputs = dict(zip(names, map(torch.tensor, INPUTS.values()), strict=True))
    if choices:
        inputs = {name: rows[None] for name, rows in inputs.items()}
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True)


def _change_config(path: pathlib.Path, changes: Mapping[str, str | None]) -> None:
    config = json.loads(path.read_text()) | changes
    config = {name: value for name, value in config.items() if value is not None}
    path.write_text(json.dumps(config))


def keras_hub() -> None:
    import keras
    from keras_hub.models import ElectraBackbone, ElectraTokenizer

    keras.utils.set_random_seed(0)
    backbone = ElectraBackbone(
        vocab_size=len(WORDS), num_layers=2, num_heads=3, hidden_dim=24,
        embedding_dim=16, intermediate_dim=40, dropout=0.1, max_sequence_length=16,
    )  # fmt: skip
    _add_noise(backbone.weights)
    folder = GOLDEN / "keras_hub"
    _write_vocabulary(GOLDEN / "vocab.txt")
    backbone.save_to_preset(str(folder))
    ElectraTokenizer(str(GOLDEN / "vocab.txt"), lowercase=True).save_to_preset(
        str(folder)
    )
    hidden = np.asarray(backbone(INPUTS)["sequence_output"])
    np.savez(folder / "outputs.npz", hidden=hidden)


def model_garden() -> None:
    import tensorflow as tf
    import tensorflow_models as tfm
    from official.nlp.configs import encoders

    tf.random.set_seed(0)
    shape = encoders.BertEncoderConfig(
        vocab_size=len(WORDS), hidden_size=24, num_layers=2, num_attention_heads=3,
        intermediate_size=40, max_position_embeddings=16, embedding_size=16,
    )  # fmt: skip
    encoder = tfm.nlp.encoders.build_encoder(
        tfm.nlp.encoders.EncoderConfig(type="bert", bert=shape)
    )
    _add_noise(encoder.weights)
    folder = GOLDEN / "model_garden"
    tf.train.Checkpoint(encoder=encoder).save(str(folder / "encoder.ckpt"))
    _write_vocabulary(folder / "vocab.txt")
    names = ("input_word_ids", "input_type_ids", "input_mask")
    arrays = (INPUTS[name].astype(np.int32) for name in INPUTS)
    outputs = encoder(dict(zip(names, arrays, strict=True)), training=False)
    np.savez(folder / "outputs.npz", hidden=outputs["sequence_output"].numpy())


def _add_noise(weights: Iterable[Any]) -> None:
    rng = np.random.default_rng(0)
    for weight in weights:
        weight.assign(weight.numpy() + rng.normal(0, 0.3, weight.shape))


def _write_vocabulary(path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{word}\n" for word in WORDS))


if __name__ == "__main__":
    writers = huggingface, huggingface_odd, huggingface_heads, keras_hub, model_garden
    for write in writers:
        if write.__name__ in sys.argv[1:]:
            write()
