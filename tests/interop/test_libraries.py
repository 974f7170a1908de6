"""Conversion against the libraries themselves; needs the extra `interop-test`.

Random weights in the shapes of published models. Shapes are those of the config.json
that google, hfl and others published; depth is cut where it is above 12 or the name
ends in large, and the vocabulary to 999 entries.
"""

import json

import numpy as np
import pytest

import electra_tf
from electra_tf.config import loader
from electra_tf.interop.conversion import convert_checkpoint
from electra_tf.model.electra import Electra
from electra_tf.training.checkpoint import CONFIG, assign, open_checkpoint
from interop.test_conversion import every_layer

pytestmark = pytest.mark.slow
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
WORDS += [f"##{word}" for word in WORDS[5:]]
WORDS += [f"word{n}" for n in range(999 - len(WORDS))]
# embedding_size; hidden_size, heads, intermediate_size, layers of both halves.
PUBLISHED = {
    "google/electra-small": (128, (256, 4, 1024, 12), (256, 4, 1024, 12)),
    "google/electra-base": (768, (768, 12, 3072, 12), (256, 4, 1024, 12)),
    "google/electra-large": (1024, (1024, 16, 4096, 2), (256, 4, 1024, 2)),
    "hfl/chinese-electra-small": (128, (256, 4, 1024, 12), (64, 1, 256, 12)),
    "hfl/chinese-electra-base": (768, (768, 12, 3072, 12), (192, 3, 768, 12)),
    "hfl/chinese-electra-large": (1024, (1024, 16, 4096, 2), (256, 4, 1024, 2)),
    "hfl/chinese-electra-180g-small": (128, (256, 4, 1024, 12), (64, 1, 256, 12)),
    "hfl/chinese-electra-180g-small-ex": (128, (256, 4, 1024, 24), (64, 1, 256, 24)),
    "hfl/chinese-electra-180g-base": (768, (768, 12, 3072, 12), (192, 3, 768, 12)),
    "hfl/chinese-electra-180g-large": (1024, (1024, 16, 4096, 2), (256, 4, 1024, 2)),
}
SMALL = ((256, 4, 1024, 2), (64, 1, 256, 2))
# What a published config.json has, or lacks (None), beside the usual.
ODD = {
    "mercelisw/electra-grc": {
        "model_type": None, "layer_norm_eps": None, "generator_size": "0.25",
    },
    "skimai/electra-small-spanish": {
        "model_type": None, "layer_norm_eps": None, "generator_size": "0.25",
    },
    "classla/bcms-bertic-generator": {"architectures": ["ElectraForPreTraining"]},
    "deepset/gelectra-large": {"attention_probs_dropout_prob": None},
    "ruElectra-medium": {"hidden_size": 576, "num_attention_heads": 9},
    "nghuyong/ernie-health-zh": {"layer_norm_eps": 1e-5},
    "hfl without architectures": {"architectures": None},
}  # fmt: skip
NAMES = ("input_ids", "token_type_ids", "attention_mask")
LENGTH = 24


def batch():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, len(WORDS), (2, LENGTH))
    segments, mask = np.zeros_like(ids), np.ones_like(ids)
    segments[:, LENGTH // 2 :] = 1
    mask[1, -7:] = 0
    return ids, segments, mask


def write_pair(folder, embedding, shapes, more=None):
    """Write both halves with transformers; return its models."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    classes = (transformers.ElectraForPreTraining, transformers.ElectraForMaskedLM)
    torch.manual_seed(0)
    models = []
    for shape, cls in zip(shapes, classes, strict=True):
        keys = ("hidden_size", "num_attention_heads", "intermediate_size")
        values = dict(zip((*keys, "num_hidden_layers"), shape, strict=True))
        given = {k: v for k, v in (more or {}).items() if v is not None}
        if cls is not classes[0]:
            for key in keys:
                given.pop(key, None)
        config = transformers.ElectraConfig(
            **{
                "vocab_size": len(WORDS),
                "embedding_size": embedding,
                "summary_type": "first",
                **values,
                **given,
            }
        )
        model = cls(config).eval()
        randomise(model, torch)
        if models:
            tables = models[0].electra.embeddings.state_dict()
            model.electra.embeddings.load_state_dict(tables)
        models.append(model)
    for model, name in zip(models, ("discriminator", "generator"), strict=True):
        model.save_pretrained(folder / name)
        text = "".join(f"{word}\n" for word in WORDS)
        (folder / name / "vocab.txt").write_text(text)
        path = folder / name / "config.json"
        config = json.loads(path.read_text())
        for key, value in (more or {}).items():
            if value is None:
                config.pop(key, None)
            elif key in ("generator_size", "architectures"):
                config[key] = value
        path.write_text(json.dumps(config))
    return models


def randomise(model, torch):
    """Give biases and layer norms values other than the initial zeros and ones."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.1)
            elif "LayerNorm" in name:
                weight.normal_(1.0, 0.1)


def outputs_of(model):
    """Return hidden states and logits as transformers computes them."""
    import torch

    inputs = dict(zip(NAMES, map(torch.tensor, batch()), strict=True))
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True)
    hidden = [states.numpy() for states in output.hidden_states]
    logits = getattr(output, "logits", None)
    return hidden, None if logits is None else logits.numpy()


def load(folder):
    checkpoint = open_checkpoint(str(folder))
    config = loader.parse_config(checkpoint.read(CONFIG).decode(), "a checkpoint")
    model = Electra(config.model)
    model.build()
    assign({v.path: v for v in model.weights}, checkpoint.weights(), "a checkpoint")
    return model


def largest(ours, theirs):
    real = batch()[2] > 0
    return max(np.abs(a - b)[real].max() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", [*PUBLISHED, *ODD])
def test_published_shapes_compute_what_transformers_computes(name, tmp_path):
    embedding, *shapes = PUBLISHED.get(name, (128, *SMALL))
    models = write_pair(tmp_path, embedding, shapes, ODD.get(name))
    pair = f"{tmp_path / 'discriminator'},{tmp_path / 'generator'}"
    convert_checkpoint(pair, tmp_path / "ours")
    ours, (ids, segments, mask) = load(tmp_path / "ours"), batch()
    positions = np.tile(np.arange(LENGTH), (2, 1))
    logits = (
        ours(ids, segments, mask),
        ours.generator(ids, segments, mask, positions),
    )
    worst = [0.0, 0.0]
    encoders = (ours.encoder, ours.generator.encoder)
    for model, encoder, own in zip(models, encoders, logits, strict=True):
        hidden, expected = outputs_of(model)
        worst[0] = max(worst[0], largest(every_layer(encoder, *batch()), hidden))
        worst[1] = max(worst[1], largest([np.asarray(own)], [expected]))
    print(f"\n{name}: hidden states {worst[0]:.1e}, logits {worst[1]:.1e}")
    assert max(worst) < 1e-5

    convert_checkpoint(tmp_path / "ours", tmp_path / "back", "huggingface")
    for role, folder in (("discriminator", ""), ("generator", "generator")):
        assert_same_tensors(tmp_path / role, tmp_path / "back" / folder)


def assert_same_tensors(before, after):
    from electra_tf.interop.tensor_files import find_weights, read_tensors

    before, after = (read_tensors(find_weights(folder)) for folder in (before, after))
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert after[name].dtype == array.dtype, name
        np.testing.assert_array_equal(after[name], array, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["safetensors", "shards", "zip", "legacy"])
def test_files_of_every_kind_return_with_keys_and_dtypes(dtype, kind, tmp_path):
    torch = pytest.importorskip("torch")
    write_pair(tmp_path / "made", 128, SMALL)
    transformers = pytest.importorskip("transformers")
    model = transformers.ElectraForPreTraining.from_pretrained(
        tmp_path / "made" / "discriminator"
    ).to(getattr(torch, dtype))
    source = tmp_path / "source"
    limit = "400KB" if kind == "shards" else "5GB"
    model.save_pretrained(source, max_shard_size=limit)
    if kind in ("zip", "legacy"):
        (source / "model.safetensors").unlink()
        torch.save(
            model.state_dict(),
            source / "pytorch_model.bin",
            _use_new_zipfile_serialization=kind == "zip",
        )
    assert (source / "model.safetensors.index.json").exists() == (kind == "shards")
    vocabulary = (tmp_path / "made" / "discriminator" / "vocab.txt").read_text()
    (source / "vocab.txt").write_text(vocabulary)
    convert_checkpoint(source, tmp_path / "ours")
    convert_checkpoint(tmp_path / "ours", tmp_path / "back", "huggingface")
    assert_same_tensors(source, tmp_path / "back")
    loaded = transformers.AutoModelForPreTraining.from_pretrained(
        tmp_path / "back", **{dtype_option(transformers): "auto"}
    )
    assert loaded.dtype == getattr(torch, dtype)


def dtype_option(transformers):
    return "dtype" if int(transformers.__version__.split(".")[0]) > 4 else "torch_dtype"


def test_transformers_loads_the_target_without_an_edit(tmp_path):
    models = write_pair(tmp_path, 128, SMALL)
    transformers = pytest.importorskip("transformers")
    pair = f"{tmp_path / 'discriminator'},{tmp_path / 'generator'}"
    convert_checkpoint(pair, tmp_path / "ours")
    convert_checkpoint(tmp_path / "ours", tmp_path / "there", "huggingface")
    classes = (transformers.AutoModelForPreTraining, transformers.AutoModelForMaskedLM)
    folders = (tmp_path / "there", tmp_path / "there" / "generator")
    for model, cls, folder in zip(models, classes, folders, strict=True):
        loaded, info = cls.from_pretrained(folder, output_loading_info=True)
        assert not any(info.values()), info
        np.testing.assert_array_equal(outputs_of(loaded)[1], outputs_of(model)[1])
    body = transformers.AutoModel.from_pretrained(folders[0])
    np.testing.assert_array_equal(outputs_of(body)[0][-1], outputs_of(models[0])[0][-1])


@pytest.mark.parametrize(
    "kind", ["ElectraForTokenClassification", "BertForTokenClassification",
             "ElectraForQuestionAnswering", "BertForQuestionAnswering"],
)  # fmt: skip
def test_heads_of_tasks_compute_what_transformers_computes(kind, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model_class = getattr(transformers, kind)
    torch.manual_seed(0)
    labels = {}
    if "Token" in kind:
        labels["id2label"] = dict(enumerate(["O", "B-X", "I-X"]))
        labels["label2id"] = {name: n for n, name in labels["id2label"].items()}
    config = model_class.config_class(
        vocab_size=len(WORDS), hidden_size=128, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=512, **labels,
    )  # fmt: skip
    model = model_class(config).eval()
    randomise(model, torch)
    model.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    convert_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    ours = electra_tf.load_model(tmp_path / "ours")
    ids, segments, mask = batch()
    segments = segments * mask
    names = ("token_ids", "segment_ids", "padding_mask")
    own = ours(dict(zip(names, (ids, segments, mask), strict=True)))
    arrays = zip(NAMES, (ids, segments, mask), strict=True)
    with torch.no_grad():
        theirs = model(**{name: torch.tensor(a) for name, a in arrays})
    if "Token" in kind:
        assert ours.tags == ("O", "B-X", "I-X")
        real = mask > 0
        np.testing.assert_allclose(own[real], theirs.logits.numpy()[real], atol=2e-5)
    else:
        inside = segments > 0
        for name in ("start", "end"):
            logits = np.asarray(own[f"{name}_logits_BL"])[inside]
            expected = theirs[f"{name}_logits"].numpy()[inside]
            np.testing.assert_allclose(logits, expected, atol=2e-5)
    convert_checkpoint(tmp_path / "ours", tmp_path / "back", "huggingface")
    if kind.startswith("Bert"):
        kind = kind.replace("Bert", "Electra")
    auto = getattr(transformers, kind.replace("Electra", "AutoModel"))
    loaded, info = auto.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info.values()), info
    assert type(loaded).__name__ == kind
    if "Token" in kind:
        assert loaded.config.id2label == model.config.id2label
    arrays = zip(NAMES, (ids, segments, mask), strict=True)
    with torch.no_grad():
        again = loaded.eval()(**{name: torch.tensor(a) for name, a in arrays})
    for name, array in theirs.items():
        np.testing.assert_allclose(again[name], array, atol=1e-6)
