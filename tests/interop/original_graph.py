"""Compute a pair with the original's own graph (Python 3.7, TensorFlow 1.15).

original_graph.py CHECKOUT CHECKPOINT INPUTS.npz OUTPUTS.npz SHAPES.json
"""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf


def build(shapes, half, inputs, **scope):
    """Return the config and the network of one half of the pair."""
    from model import modeling

    config = modeling.BertConfig(vocab_size=shapes["words"], **shapes[half])
    network = modeling.BertModel(
        bert_config=config,
        is_training=False,
        use_one_hot_embeddings=False,
        embedding_size=shapes["embedding_size"],
        **inputs,
        **scope,
    )
    return config, network


def outputs(shapes, inputs):
    """Return the hidden states and the logits of both halves."""
    import run_pretraining
    from model import modeling

    config, discriminator = build(shapes, "discriminator", inputs)
    own, generator = build(shapes, "generator", inputs, scope="generator")
    with tf.variable_scope("discriminator_predictions"):
        hidden = tf.layers.dense(
            discriminator.get_sequence_output(),
            config.hidden_size,
            activation=modeling.get_activation("gelu"),
        )
        scores = tf.squeeze(tf.layers.dense(hidden, 1), -1)
    with tf.variable_scope("generator_predictions"):
        logits = run_pretraining.get_token_logits(
            generator.get_sequence_output(), generator.get_embedding_table(), own
        )
    return {
        "discriminator": tf.stack(discriminator.get_all_encoder_layers()),
        "generator": tf.stack(generator.get_all_encoder_layers()),
        "scores": scores,
        "logits": logits,
    }


def restore(checkpoint):
    """Initialise all variables from the checkpoint by the original's own function."""
    from model import modeling

    variables = tf.trainable_variables()
    assignment, known = modeling.get_assignment_map_from_checkpoint(
        variables, checkpoint
    )
    missing = [v.name for v in variables if v.name not in known]
    if missing:
        raise SystemExit(f"not in the checkpoint: {missing}")
    tf.train.init_from_checkpoint(checkpoint, assignment)
    names = {name for name, _ in tf.train.list_variables(checkpoint)}
    print(f"{len(variables)} variables, not read: {sorted(names - set(known))}")


def main(checkout, checkpoint, inputs_file, outputs_file, shapes_file):
    """Write the outputs."""
    sys.path.insert(0, checkout)
    with open(shapes_file) as file:
        shapes = json.load(file)
    with np.load(inputs_file) as file, tf.Graph().as_default():
        inputs = {name: tf.constant(array, tf.int32) for name, array in file.items()}
        tensors = outputs(shapes, inputs)
        restore(checkpoint)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            np.savez(outputs_file, **session.run(tensors))


if __name__ == "__main__":
    main(*sys.argv[1:])
