"""The README.md of a converted model."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from electra_tf.interop.network import Network
    from electra_tf.interop.pretrained import PretrainedModel

_TEMPLATE = """\
---
library_name: transformers
tags: [{kind}, electra_tf]
---

# {kind_name} {role}

{shape.depth} layers, width {shape.width}, {shape.heads} heads, embeddings \
{shape.embedding}, {shape.vocabulary_size:,} wordpieces, up to {shape.max_positions} \
positions: {numbers:,} parameters.

## Load

```python
from transformers import AutoTokenizer, {theirs}

tokenizer = AutoTokenizer.from_pretrained(".")
model = {theirs}.from_pretrained(".")
```

```python
import electra_tf

model = electra_tf.{ours}.from_preset(".")
```
"""
_GENERATOR = """
The generator is in a subfolder: `AutoModelForMaskedLM.from_pretrained(".", \
subfolder="generator")`.
"""
_METRICS = ("masked_lm_", "sampled_masked_lm_", "disc_")  # starts of their names


def model_card(model: "PretrainedModel", network: "Network") -> str:
    """Return a model card in Markdown: shape, loading, and what the run recorded."""
    card = _TEMPLATE.format(
        kind=network.library,
        kind_name=network.library.upper(),
        role=network.role.replace("_", " "),
        shape=network.shape,
        numbers=sum(array.size for array in network.weights.values()),
        theirs=f"AutoModel{network.class_end.removeprefix('Model')}",
        ours=network.head.kind.model if network.head else "Encoder",
    )
    if network.role == "discriminator" and len(model.networks) == 2:
        card += _GENERATOR
    return card + _training(model)


def _training(model: "PretrainedModel") -> str:
    """Return the steps, facts, metrics and settings of the run, as far as known."""
    run = model.run
    lines = [f"- Steps: {model.step:,}"] * bool(model.step)
    lines += [f"- {name}: {value}" for name, value in run.get("facts", {}).items()]
    lines += [
        f"- {name} on {records}: {value:.4f}"
        for records, row in run.get("metrics", {}).items()
        for name, value in row.items()
        if name.startswith(_METRICS) and value is not None
    ]
    if settings := run.get("settings"):
        lines.append(f"\n```yaml\n{settings.rstrip()}\n```")
    return "\n".join(["\n## Training\n", *lines, ""]) if lines else ""
