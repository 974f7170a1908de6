"""The README.md of a converted model, made from what its run recorded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from electra_tf.interop.network import Network
    from electra_tf.interop.pretrained import PretrainedModel

_LOADERS = {
    "discriminator": "AutoModelForPreTraining",
    "generator": "AutoModelForMaskedLM",
    "encoder": "AutoModel",
}


def model_card(model: "PretrainedModel", network: "Network") -> str:
    """Return a model card in Markdown: shape, data, settings, metrics, how to load it.

    Args:
        model: With the record of its run.
        network: The network that the card describes.
    """
    shape, role = network.shape, network.role
    numbers = sum(array.size for array in network.weights.values())
    header = {"library_name": "transformers", "tags": ["electra", "electra_tf"]}
    parts = [
        f"---\n{yaml.safe_dump(header)}---",
        f"# ELECTRA {role}",
        f"{shape.depth} layers, width {shape.width}, {shape.heads} heads, embeddings "
        f"{shape.embedding}, {shape.vocabulary_size:,} wordpieces, up to "
        f"{shape.max_positions} positions: {numbers:,} parameters.",
        "## Load\n\n```python\n"
        f"from transformers import AutoTokenizer, {_LOADERS[role]}\n\n"
        'tokenizer = AutoTokenizer.from_pretrained(".")\n'
        f'model = {_LOADERS[role]}.from_pretrained(".")\n'
        "```\n\n```python\nimport electra_tf\n\n"
        'model = electra_tf.TextClassifier.from_preset(".", num_classes=2)\n```',
    ]
    if model.tokenizer is not None:
        parts.append(f"## Tokenizer\n\nWordPiece, {model.tokenizer.settings}.")
    if model.step:
        parts.append(f"## Training\n\n{model.step:,} steps.")
    for title in ("metrics", "data", "settings"):
        if model.run.get(title):
            parts.append(f"### {title.capitalize()}\n\n{_block(model.run[title])}")
    return "\n\n".join(parts) + "\n"


def _block(value: Mapping[str, Any] | str) -> str:
    text = (
        value
        if isinstance(value, str)
        else yaml.safe_dump(dict(value), sort_keys=False)
    )
    return f"```yaml\n{text.rstrip()}\n```"
