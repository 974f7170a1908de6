"""Conversion against the libraries themselves; needs the extra `interop-test`.

Random weights in the shapes of published models, with a vocabulary of 999 entries.
Targets are read by their libraries. Golden outputs of other shapes and configs are in
`test_conversion.py`.
"""

import numpy as np
import pytest

import electra_tf
from electra_tf.runs.conversion import convert_checkpoint
from tests.interop.numpy_forward import hidden_states
from tests.interop.test_conversion import every_layer

pytestmark = pytest.mark.tools
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
WORDS += [f"##{word}" for word in WORDS[5:]]
WORDS += [f"word{n}" for n in range(999 - len(WORDS))]
SMALL = ((256, 4, 1024, 2), (64, 1, 256, 2))
# embedding_size; hidden_size, heads, intermediate_size, layers of both halves.
PUBLISHED = {
    "google/electra-base": (768, (768, 12, 3072, 12), (256, 4, 1024, 12)),
    "hfl/chinese-electra-180g-small": (128, (256, 4, 1024, 12), (64, 1, 256, 12)),
}
NAMES = ("input_ids", "token_type_ids", "attention_mask")
LENGTH = 24


def batch():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, len(WORDS), (2, LENGTH))
    segments, mask = np.zeros_like(ids), np.ones_like(ids)
    segments[:, LENGTH // 2 :] = 1
    mask[1, -7:] = 0
    return ids, segments, mask


def write_pair(folder, embedding, shapes):
    """Write both halves with transformers; return its models."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    classes = {
        "discriminator": transformers.ElectraForPreTraining,
        "generator": transformers.ElectraForMaskedLM,
    }
    torch.manual_seed(0)
    models = []
    for shape, (name, cls) in zip(shapes, classes.items(), strict=True):
        keys = ("hidden_size", "num_attention_heads", "intermediate_size")
        values = dict(zip((*keys, "num_hidden_layers"), shape, strict=True))
        config = transformers.ElectraConfig(
            vocab_size=len(WORDS), embedding_size=embedding, **values
        )
        model = cls(config).eval()
        randomise(model, torch)
        if models:
            tables = models[0].electra.embeddings.state_dict()
            model.electra.embeddings.load_state_dict(tables)
        models.append(model)
        model.save_pretrained(folder / name)
        text = "".join(f"{word}\n" for word in WORDS)
        (folder / name / "vocab.txt").write_text(text)
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


def largest(ours, theirs):
    real = batch()[2] > 0
    return max(np.abs(a - b)[real].max() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes_compute_what_transformers_computes(name, tmp_path):
    embedding, *shapes = PUBLISHED[name]
    models = write_pair(tmp_path, embedding, shapes)
    pair = f"{tmp_path / 'discriminator'},{tmp_path / 'generator'}"
    convert_checkpoint(pair, tmp_path / "ours")
    ours = electra_tf.Electra.from_preset(tmp_path / "ours")
    ids, segments, mask = batch()
    positions = np.tile(np.arange(LENGTH), (2, 1))
    logits = (ours(ids, segments, mask), ours.generator(ids, segments, mask, positions))
    worst = [0.0, 0.0]
    encoders = (ours.encoder, ours.generator.encoder)
    for model, encoder, own in zip(models, encoders, logits, strict=True):
        hidden, expected = outputs_of(model)
        worst[0] = max(worst[0], largest(every_layer(encoder, *batch()), hidden))
        worst[1] = max(worst[1], largest([np.asarray(own)], [expected]))
    print(f"\n{name}: hidden states {worst[0]:.1e}, logits {worst[1]:.1e}")
    assert max(worst) < 1e-5

    back = tmp_path / "back"
    convert_checkpoint(tmp_path / "ours", back, "huggingface")
    transformers = pytest.importorskip("transformers")
    folders = {
        "AutoModelForPreTraining": back,
        "AutoModelForMaskedLM": back / "generator",
    }
    for model, (cls, folder) in zip(models, folders.items(), strict=True):
        loaded, info = getattr(transformers, cls).from_pretrained(
            folder, output_loading_info=True
        )
        assert not any(info.values()), info
        for one, other in zip(outputs_of(loaded), outputs_of(model), strict=True):
            np.testing.assert_array_equal(one, other)
    tokenizer = transformers.AutoTokenizer.from_pretrained(back)
    mask = WORDS.index("[MASK]")
    for text in ("[MASK]", "word7 [MASK] b", "word7[MASK]b"):
        assert tokenizer(text)["input_ids"].count(mask) == 1


@pytest.mark.parametrize("kind", ["shards", "legacy"])
def test_files_of_half_precision_return_in_float32(kind, tmp_path):
    (model, _), source = write_pair(tmp_path, 128, SMALL), tmp_path / "discriminator"
    import torch

    model = model.to(torch.bfloat16)
    (source / "model.safetensors").unlink()
    if kind == "legacy":
        weights = source / "pytorch_model.bin"
        torch.save(model.state_dict(), weights, _use_new_zipfile_serialization=False)
    else:
        model.save_pretrained(source, max_shard_size="400KB")
        assert (source / "model.safetensors.index.json").exists()
    convert_checkpoint(source, tmp_path / "ours")
    convert_checkpoint(tmp_path / "ours", tmp_path / "back", "huggingface")
    loaded = type(model).from_pretrained(tmp_path / "back")
    for name, array in model.float().state_dict().items():
        assert torch.equal(loaded.state_dict()[name], array), name


@pytest.mark.parametrize(
    "kind", ["ElectraForTokenClassification", "BertForTokenClassification",
             "ElectraForQuestionAnswering", "BertForQuestionAnswering",
             "ElectraForSequenceClassification"],
)  # fmt: skip
def test_heads_of_tasks_compute_what_transformers_computes(kind, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model_class = getattr(transformers, kind)
    torch.manual_seed(0)
    labels = {}
    if "Answering" not in kind:
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
    elif "Sequence" in kind:
        assert ours.labels == ("O", "B-X", "I-X")
        np.testing.assert_allclose(own, theirs.logits.numpy(), atol=1e-5)
    else:
        inside = segments > 0
        for name in ("start", "end"):
            logits = np.asarray(own[f"{name}_logits_BL"])[inside]
            expected = theirs[f"{name}_logits"].numpy()[inside]
            np.testing.assert_allclose(logits, expected, atol=2e-5)
    convert_checkpoint(tmp_path / "ours", tmp_path / "back", "huggingface")
    kind = kind.replace("Bert", "Electra")
    auto = kind.replace("Electra", "AutoModel")
    auto = getattr(transformers, auto)
    loaded, info = auto.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info.values()), info
    assert type(loaded).__name__ == kind
    if "Answering" not in kind:
        assert loaded.config.id2label == model.config.id2label
    arrays = zip(NAMES, (ids, segments, mask), strict=True)
    with torch.no_grad():
        again = loaded.eval()(**{name: torch.tensor(a) for name, a in arrays})
    for name, array in theirs.items():
        np.testing.assert_allclose(again[name], array, atol=1e-6)


@pytest.fixture
def pair(tmp_path):
    """Return a pair's discriminator in transformers, and the pair's folder."""
    return write_pair(tmp_path, 128, SMALL)[0], tmp_path


def tanh_states(conversion):
    """Return the hidden states with Keras's gelu, by the NumPy forward pass."""
    (network,) = conversion.model.networks
    return hidden_states(network, *batch(), "gelu_tanh")[1:]


def test_keras_hub(pair):
    model, folder = pair
    keras_hub = pytest.importorskip("keras_hub")
    target = folder / "preset"
    conversion = convert_checkpoint(folder / "discriminator", target, "keras_hub")
    backbone = keras_hub.models.ElectraBackbone.from_preset(str(target))
    names = ("token_ids", "segment_ids", "padding_mask")
    outputs = backbone(dict(zip(names, batch(), strict=True)))
    hidden = np.asarray(outputs["sequence_output"])
    with_tanh = largest([hidden], tanh_states(conversion)[-1:])
    exact = largest([hidden], outputs_of(model)[0][-1:])
    assert with_tanh < 1e-5
    assert with_tanh < exact < 1e-2
    tokenizer = keras_hub.models.ElectraTokenizer.from_preset(str(target))
    ids = np.asarray(tokenizer("word7 ab!")).tolist()
    assert ids == conversion.model.tokenizer.encode("word7 ab!")


def test_model_garden(pair):
    model, folder = pair
    tfm = pytest.importorskip("tensorflow_models")
    import tensorflow as tf
    from official.nlp.configs import encoders

    source, target = folder / "discriminator", folder / "garden"
    conversion = convert_checkpoint(source, target, "model_garden")
    width, heads, inner, depth = SMALL[0]
    encoder = tfm.nlp.encoders.build_encoder(
        tfm.nlp.encoders.EncoderConfig(
            type="bert",
            bert=encoders.BertEncoderConfig(
                vocab_size=len(WORDS), hidden_size=width, num_layers=depth,
                num_attention_heads=heads, intermediate_size=inner,
                max_position_embeddings=512, embedding_size=128,
            ),
        )
    )  # fmt: skip
    checkpoint = tf.train.Checkpoint(encoder=encoder)
    checkpoint.restore(tf.train.latest_checkpoint(str(target))).assert_consumed()
    names = ("input_word_ids", "input_type_ids", "input_mask")
    arrays = (array.astype(np.int32) for array in batch())
    outputs = encoder(dict(zip(names, arrays, strict=True)), training=False)
    computed = [states.numpy() for states in outputs["encoder_outputs"]]
    with_tanh = largest(computed, tanh_states(conversion))
    exact = largest(computed[-1:], outputs_of(model)[0][-1:])
    assert with_tanh < 1e-5
    assert with_tanh < exact < 1e-2
