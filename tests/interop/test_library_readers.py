"""The targets of `convert`, read by the libraries themselves; each needs its library.

The original needs Python 3.7 and TensorFlow 1.15. ELECTRA_TF_TF1_PYTHON names such a
Python, ELECTRA_TF_ORIGINAL a checkout of google-research/electra.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from electra_tf.interop.conversion import convert_checkpoint
from electra_tf.interop.numpy_forward import hidden_states
from interop.test_libraries import (
    PUBLISHED,
    SMALL,
    WORDS,
    batch,
    largest,
    outputs_of,
    write_pair,
)

pytestmark = pytest.mark.slow
SHAPES = {
    "google/electra-small": PUBLISHED["google/electra-small"],
    "google/electra-base": PUBLISHED["google/electra-base"],
    "2 layers": (128, *SMALL),
}


@pytest.fixture(params=SHAPES)
def pair(request, tmp_path):
    """Name and shape of a pair, its models in transformers, and its folders."""
    shape = SHAPES[request.param]
    models = write_pair(tmp_path, *shape[:1], shape[1:])
    return request.param, shape, models, tmp_path


def report(library, name, **differences):
    values = (f"{key} {value:.1e}" for key, value in differences.items())
    print(f"\n{library} {name}: {', '.join(values)}")


def tanh_states(conversion):
    """Return the hidden states with Keras's gelu, by the NumPy forward pass."""
    (network,) = conversion.model.networks
    return hidden_states(network.origin, *batch(), "gelu_tanh")[1:]


def test_transformers(pair):
    name, _, models, folder = pair
    transformers = pytest.importorskip("transformers")
    parts = f"{folder / 'discriminator'},{folder / 'generator'}"
    convert_checkpoint(parts, folder / "ours")
    convert_checkpoint(folder / "ours", folder / "there", "huggingface")
    found = {}
    classes = ("AutoModelForPreTraining", "AutoModelForMaskedLM")
    folders = (folder / "there", folder / "there" / "generator")
    for model, path, cls in zip(models, folders, classes, strict=True):
        loaded = getattr(transformers, cls).from_pretrained(path)
        (hidden, logits), (states, expected) = map(outputs_of, (loaded, model))
        found[f"{cls} hidden states"] = largest(hidden, states)
        found[f"{cls} logits"] = largest([logits], [expected])
        body = transformers.AutoModel.from_pretrained(path)
        found["AutoModel"] = largest(outputs_of(body)[0], states)
    report(f"transformers {transformers.__version__}", name, **found)
    assert not any(found.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "there")
    mask = WORDS.index("[MASK]")
    for text in ("[MASK]", "word7 [MASK] b", "word7[MASK]b"):
        assert tokenizer(text)["input_ids"].count(mask) == 1


def test_keras_hub(pair):
    name, _, models, folder = pair
    keras_hub = pytest.importorskip("keras_hub")
    target = folder / "preset"
    conversion = convert_checkpoint(folder / "discriminator", target, "keras_hub")
    backbone = keras_hub.models.ElectraBackbone.from_preset(str(target))
    names = ("token_ids", "segment_ids", "padding_mask")
    outputs = backbone(dict(zip(names, batch(), strict=True)))
    hidden = np.asarray(outputs["sequence_output"])
    with_tanh = largest([hidden], tanh_states(conversion)[-1:])
    exact = largest([hidden], outputs_of(models[0])[0][-1:])
    report(f"keras_hub {keras_hub.__version__}", name, tanh=with_tanh, exact=exact)
    assert with_tanh < 1e-5
    assert with_tanh < exact < 1e-2
    tokenizer = keras_hub.models.ElectraTokenizer.from_preset(str(target))
    ids = np.asarray(tokenizer("word7 ab!")).tolist()
    assert ids == conversion.model.tokenizer.encode("word7 ab!")


def test_model_garden(pair):
    name, shape, models, folder = pair
    tfm = pytest.importorskip("tensorflow_models")
    import tensorflow as tf
    from official.nlp.configs import encoders

    source, target = folder / "discriminator", folder / "garden"
    conversion = convert_checkpoint(source, target, "model_garden")
    embedding, (width, heads, inner, depth), _ = shape
    encoder = tfm.nlp.encoders.build_encoder(
        tfm.nlp.encoders.EncoderConfig(
            type="bert",
            bert=encoders.BertEncoderConfig(
                vocab_size=len(WORDS), hidden_size=width, num_layers=depth,
                num_attention_heads=heads, intermediate_size=inner,
                max_position_embeddings=512, embedding_size=embedding,
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
    exact = largest(computed[-1:], outputs_of(models[0])[0][-1:])
    report("model_garden", name, tanh=with_tanh, exact=exact)
    assert with_tanh < 1e-5
    assert with_tanh < exact < 1e-2


@pytest.fixture
def original():
    """Return a Python with TensorFlow 1.15 and the original's checkout."""
    names = ("ELECTRA_TF_TF1_PYTHON", "ELECTRA_TF_ORIGINAL")
    if not all(map(os.environ.get, names)):
        pytest.skip(f"needs {' and '.join(names)}")
    return [os.environ[name] for name in names]


def test_graph_of_the_original(pair, original):
    name, (embedding, *sizes), models, folder = pair
    parts = f"{folder / 'discriminator'},{folder / 'generator'}"
    convert_checkpoint(parts, folder / "tf1", "tf1")
    keys = ("hidden_size", "num_attention_heads", "intermediate_size")
    shapes = {
        half: dict(zip((*keys, "num_hidden_layers"), size, strict=True))
        for half, size in zip(("discriminator", "generator"), sizes, strict=True)
    }
    shapes |= {"words": len(WORDS), "embedding_size": embedding}
    (folder / "shapes.json").write_text(json.dumps(shapes))
    names = ("input_ids", "token_type_ids", "input_mask")
    np.savez(folder / "inputs.npz", **dict(zip(names, batch(), strict=True)))
    python, checkout = original
    script = pathlib.Path(__file__).parent / "original_graph.py"
    files = ("tf1/model.ckpt-0", "inputs.npz", "outputs.npz", "shapes.json")
    result = subprocess.run(
        [python, script, checkout, *(folder / file for file in files)],
        capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.environ.get("ELECTRA_TF_TF1_PATH", "")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert "not read: ['global_step']" in result.stdout
    with np.load(folder / "outputs.npz") as found:
        differences = {
            "discriminator": largest(
                found["discriminator"], outputs_of(models[0])[0][1:]
            ),
            "generator": largest(found["generator"], outputs_of(models[1])[0][1:]),
            "scores": largest([found["scores"]], [outputs_of(models[0])[1]]),
            "logits": largest([found["logits"]], [outputs_of(models[1])[1]]),
        }
    report("original", name, **differences)
    assert max(differences.values()) < 2e-5
