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
from electra_tf.model.original_flops import (
    OUTPUT_SHARE,
    Network,
    discriminator_flops,
    masked_lm_flops,
)

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
    published = published_flops()
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


def published_flops() -> dict[str, float]:
    """Return the training FLOPs of published models, as the released script prints."""
    base, large = Network(768, 12), Network(1024, 24)
    small = Network(256, 12, length=128, embedding=128)
    generators = {
        "electra_small": Network(64, 12, length=128, embedding=128),
        "electra_base": Network(256, 12, embedding=768),
        "electra_large": Network(256, 24, embedding=1024),
    }

    def electra(network: Network, generator: str, rows: float, steps: float) -> float:
        trained = masked_lm_flops(generators[generator], rows, steps)
        return discriminator_flops(network, rows, steps) + trained

    t5 = {
        "vocabulary_size": 32000,
        "feed_forward": 65536,
        "heads": 128,
        "head_width": 128,
    }
    t5_encoder = Network(1024, 24, **t5)
    t5_decoder = Network(1024, 24, is_decoder=True, **t5)
    return {
        # Counted by TensorFlow: words x epochs x FLOPs of 20 rows of 128.
        "elmo": 2 * 10 * 768648884 * 568093262680 / (20.0 * 128),
        "xlnet": 2 * 500000 * 8192 * 15064773691518 / 32.0,
        "gpt": masked_lm_flops(Network(768, 12, vocabulary_size=40000), 128, 960800, 1),
        "bert_small": masked_lm_flops(small, 128, 1.45e6),
        "bert_base": masked_lm_flops(base, 256, 1e6),
        "bert_large": masked_lm_flops(large, 256, 1e6),
        "electra_small": electra(small, "electra_small", 128, 1e6),
        "electra_base": electra(base, "electra_base", 256, 766000),
        "electra_400k": electra(large, "electra_large", 2048, 400000),
        "electra_1.75M": electra(large, "electra_large", 2048, 1750000),
        "roberta": masked_lm_flops(
            Network(1024, 24, vocabulary_size=50265), 8000, 500000
        ),
        "albert": masked_lm_flops(
            Network(4096, 12, vocabulary_size=30000, embedding=128), 4096, 1.5e6
        ),
        "t5_11b": masked_lm_flops(t5_encoder, 2048, 1e6, 0)
        + masked_lm_flops(t5_decoder, 2048, 1e6, 1),
    }


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
