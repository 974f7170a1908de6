"""Parameters and FLOPs of configs, by the rules behind the paper's figures.

Without configs: the published models, with the paper's figure beside the script's.
`executed` are the FLOPs of the matmuls that this package runs: three for each forward
one, and the logits that are computed a second time.
"""

import argparse
import dataclasses
import math

import keras

from electra_tf.config.loader import load_config
from electra_tf.errors import InputError
from electra_tf.model import cost, original_flops
from electra_tf.model.electra import pretraining_model
from electra_tf.model.original_flops import OUTPUT_SHARE

VOCABULARY = 30522
PAPER = {  # tables 1, 2 and 8 of the paper
    "elmo": 3.3e18,
    "gpt": 4.0e19,
    "bert_small": 1.4e18,
    "bert_base": 6.4e19,
    "bert_large": 1.9e20,
    "electra_small": 1.4e18,
    "electra_base": 6.4e19,
    "electra_400k": 7.1e20,
    "electra_1.75M": 3.1e21,
    "roberta": 3.2e21,
    "xlnet": 3.9e21,
    "albert": 3.1e22,
    "t5_11b": 3.3e22,
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", help="Names or paths of configs.")
    parser.add_argument("--set", action="append", default=[], help="As for pretrain.")
    arguments = parser.parse_args()
    published = original_flops.published()
    if not arguments.configs:
        print(f"{'model':16}{'FLOPs':>24}{'/ bert_base':>13}{'paper':>10}")
        for name, flops in published.items():
            ratio = flops / published["bert_base"]
            print(f"{name:16}{flops!s:>24}{ratio:13.4f}{PAPER[name]:10.1e}")
        return
    header = ("parameters", "training", "/ bert_base", "inference, a row", "executed")
    print(f"{'config':26}" + "".join(f"{name:>18}" for name in header))
    for name in arguments.configs:
        try:
            config = load_config(name, arguments.set)
        except InputError as error:
            raise SystemExit(f"error: {error}") from None
        size = config.model.vocabulary_size or VOCABULARY
        config = dataclasses.replace(
            config, model=dataclasses.replace(config.model, vocabulary_size=size)
        )
        print(f"{name:26}" + "".join(f"{v:>18}" for v in _row(config, published)))


def _row(config, published) -> list[str]:
    length = config.records.max_length
    # The figures of the paper keep 20 of 128 at every length and rate.
    training = original_flops.training_flops(config, OUTPUT_SHARE)
    inference = original_flops.inference_flops(
        original_flops.Network.of(config.model.encoder, length)
    )
    return [
        f"{_parameters(config):,}",
        f"{training:.4e}",
        f"{training / published['bert_base']:.4f}",
        f"{inference:.4e}",
        f"{cost.training_flops(config):.4e}",
    ]


def _parameters(config) -> int:
    with keras.StatelessScope(initialize_variables=False):
        model = pretraining_model(config.model, config.objective)
        model.build()
        return sum(math.prod(v.shape) for v in model.trainable_variables)


if __name__ == "__main__":
    main()
