"""PyTorch peer of pre-training, with Hugging Face's models."""

import math
from collections.abc import Callable

import torch
import transformers
from torch.nn import functional

MASK = 4


def make_config(encoder) -> transformers.ElectraConfig:
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


class TorchElectra(torch.nn.Module):
    """Generator and discriminator with shared embeddings, from ids to the loss."""

    def __init__(self, config):
        super().__init__()
        encoder, generator = config.model.encoder, config.model.generator
        self.generator = transformers.ElectraForMaskedLM(make_config(generator))
        self.discriminator = transformers.ElectraForPreTraining(make_config(encoder))
        tables = self.discriminator.electra.embeddings
        self.generator.electra.embeddings = tables
        self.generator.generator_lm_head.weight = tables.word_embeddings.weight
        self.num_masked = math.ceil(config.masking.rate * config.records.max_length)
        self.weight = config.objective.discriminator_weight

    def forward(self, ids_BL: torch.Tensor) -> torch.Tensor:
        """Return the combined loss with random masks and samples."""
        order_BL = torch.rand(ids_BL.shape, device=ids_BL.device)
        order_BL[:, 0] = order_BL[:, -1] = 2.0  # [CLS] and [SEP]
        positions_BM = order_BL.topk(self.num_masked, largest=False).indices
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
            cdf_BMV = torch.softmax(logits_BMV, -1, torch.float32).cumsum(-1)
            target_BM1 = torch.rand_like(cdf_BMV[..., :1]) * cdf_BMV[..., -1:]
            sampled_BM = torch.searchsorted(cdf_BMV, target_BM1)[..., 0]
            corrupted_BL = ids_BL.scatter(1, positions_BM, sampled_BM)
        disc_logits_BL = self.discriminator(corrupted_BL).logits
        fake_BL = (corrupted_BL != ids_BL).float()
        disc = functional.binary_cross_entropy_with_logits(disc_logits_BL, fake_BL)
        return masked_lm + self.weight * disc


def make_step(config, ids_BL: torch.Tensor, compiled: bool) -> Callable[[], None]:
    device = ids_BL.device.type
    model = TorchElectra(config).train().to(device)
    mixed = config.training.precision == "mixed_bfloat16"
    settings = config.optimizer
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(settings.beta_1, settings.beta_2),
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    loss_fn = torch.compile(model) if compiled else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=mixed):
            loss = loss_fn(ids_BL)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimizer.step()

    return step
