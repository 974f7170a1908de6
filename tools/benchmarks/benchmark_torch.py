"""The PyTorch peer of `benchmark train`: an ELECTRA step of Hugging Face's models."""

import math
from collections.abc import Callable

import torch
import transformers
from torch.nn import functional

MASK = 4


def _shape(encoder) -> transformers.ElectraConfig:
    return transformers.ElectraConfig(
        vocab_size=encoder.vocabulary_size,
        embedding_size=encoder.embedding,
        hidden_size=encoder.width,
        num_hidden_layers=encoder.depth,
        num_attention_heads=encoder.heads,
        intermediate_size=encoder.feed_forward,
        max_position_embeddings=encoder.max_positions,
        hidden_dropout_prob=encoder.dropout,
        attention_probs_dropout_prob=encoder.attention_dropout,
    )


class Pair(torch.nn.Module):
    """Generator and discriminator with shared embeddings; from ids to the loss."""

    def __init__(self, config):
        super().__init__()
        encoder, generator = config.model.encoder, config.model.generator
        self.generator = transformers.ElectraForMaskedLM(_shape(generator))
        self.discriminator = transformers.ElectraForPreTraining(_shape(encoder))
        tables = self.discriminator.electra.embeddings
        self.generator.electra.embeddings = tables
        self.generator.generator_lm_head.weight = tables.word_embeddings.weight
        self.slots = math.ceil(config.masking.rate * config.records.max_length)
        two = config.objective.sampler == "inverse_cdf"
        self.draw = by_two_numbers if two else by_gumbel
        self.weight = config.objective.discriminator_weight

    def forward(self, ids_BL: torch.Tensor) -> torch.Tensor:
        """The combined loss; masks and samples are drawn anew."""
        places_BL = torch.rand(ids_BL.shape, device=ids_BL.device)
        places_BL[:, 0] = places_BL[:, -1] = 2.0  # [CLS] and [SEP]
        positions_BM = places_BL.topk(self.slots, largest=False).indices
        labels_BM = ids_BL.gather(1, positions_BM)
        masked_BL = ids_BL.scatter(1, positions_BM, MASK)
        hidden_BLD = self.generator.electra(masked_BL).last_hidden_state
        index_BMD = positions_BM[..., None].expand(-1, -1, hidden_BLD.shape[-1])
        hidden_BMD = hidden_BLD.gather(1, index_BMD)
        logits_BMV = self.generator.generator_lm_head(
            self.generator.generator_predictions(hidden_BMD)
        )
        masked_lm = functional.cross_entropy(
            logits_BMV.flatten(0, 1), labels_BM.view(-1)
        )
        with torch.no_grad():
            sampled_BM = self.draw(logits_BMV)
            corrupted_BL = ids_BL.scatter(1, positions_BM, sampled_BM)
        judged_BL = self.discriminator(corrupted_BL).logits
        fake_BL = (corrupted_BL != ids_BL).float()
        disc = functional.binary_cross_entropy_with_logits(judged_BL, fake_BL)
        return masked_lm + self.weight * disc


def by_gumbel(logits_BMV: torch.Tensor) -> torch.Tensor:
    """Samples by a Gumbel number for each entry of the vocabulary."""
    uniform_BMV = torch.rand_like(logits_BMV)
    return (logits_BMV - torch.log(-torch.log(uniform_BMV + 1e-9) + 1e-9)).argmax(-1)


def by_two_numbers(logits_BMV: torch.Tensor) -> torch.Tensor:
    """Samples by running sums over blocks, then within one, as ours does."""
    size = logits_BMV.shape[-1]
    width = math.ceil(math.sqrt(size))
    padding = width * math.ceil(size / width) - size
    shares_BMV = functional.pad(torch.softmax(logits_BMV, -1), (0, padding))
    parts_BMKW = shares_BMV.unflatten(-1, (-1, width))
    block_BM1 = place(parts_BMKW.sum(-1))
    index_BM1W = block_BM1[..., None].expand(-1, -1, 1, width)
    within_BM1 = place(parts_BMKW.gather(2, index_BM1W)[:, :, 0])
    return (block_BM1 * width + within_BM1)[..., 0]


def place(shares_BMX: torch.Tensor) -> torch.Tensor:
    """Where a running sum reaches a random part of the whole, [B, M, 1]."""
    reached_BMX = shares_BMX.cumsum(-1)
    wanted_BM1 = torch.rand_like(reached_BMX[..., :1]) * reached_BMX[..., -1:]
    return (reached_BMX < wanted_BM1).sum(-1, keepdim=True)


def step(config, ids_BL: torch.Tensor, compiled: bool) -> Callable[[], None]:
    """One training step: loss, gradient, clipping, AdamW.

    Args:
        config: The experiment.
        ids_BL: The text.
        compiled: Whether `torch.compile` compiles the forward and backward pass.

    Returns:
        Something to call.
    """
    device = ids_BL.device.type
    pair = Pair(config).train().to(device)
    low = config.training.precision == "mixed_bfloat16"
    settings = config.optimizer
    update = torch.optim.AdamW(
        pair.parameters(),
        lr=settings.learning_rate,
        betas=(settings.beta_1, settings.beta_2),
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    loss_of = torch.compile(pair) if compiled else pair

    def one() -> None:
        update.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=low):
            loss = loss_of(ids_BL)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(pair.parameters(), settings.clip_norm)
        update.step()

    return one
