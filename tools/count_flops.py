"""Parameters and FLOPs of configs, by the rules behind the paper's figures.

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
from electra_tf.model.original_flops import OUTPUT_SHARE, Network, masked_lm_flops

VOCABULARY = 30522
BERT_BASE = masked_lm_flops(Network(768, 12), 256, 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", help="Names or paths of configs.")
    parser.add_argument("--set", action="append", default=[], help="As for pretrain.")
    arguments = parser.parse_args()
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
        print(f"{name:26}" + "".join(f"{v:>18}" for v in _row(config)))


def _row(config) -> list[str]:
    length = config.records.max_length
    # The figures of the paper keep 20 of 128 at every length and rate.
    training = original_flops.training_flops(config, OUTPUT_SHARE)
    inference = original_flops.inference_flops(Network.of(config.model.encoder, length))
    return [
        f"{_parameters(config):,}",
        f"{training:.4e}",
        f"{training / BERT_BASE:.4f}",
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
