"""The README.md of a converted model, made from what its run recorded."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from electra_tf.interop.network import Network
    from electra_tf.interop.pretrained import PretrainedModel


_ENCODER = (
    'encoder = electra_tf.Encoder.from_preset(".")  # hidden states\n'
    "# To be fine-tuned:\n"
    'classifier = electra_tf.TextClassifier.from_preset(".", num_classes=2)'
)
# A class of transformers, and lines of this package.
_LOADERS = {
    "discriminator": ("AutoModelForPreTraining", _ENCODER),
    "generator": ("AutoModelForMaskedLM", _ENCODER),
    "encoder": ("AutoModel", _ENCODER),
    "token_classifier": (
        "AutoModelForTokenClassification",
        'tagger = electra_tf.TokenClassifier.from_preset(".")\n'
        'print(tagger.predict([["Anna", "sings", "."]]))',
    ),
    "classifier": (
        "AutoModelForSequenceClassification",
        'classifier = electra_tf.TextClassifier.from_preset(".")\n'
        "print(classifier.predict([{text}]))",
    ),
    "regressor": (
        "AutoModelForSequenceClassification",
        'regressor = electra_tf.TextRegressor.from_preset(".")\n'
        "print(regressor.predict([{text}]))",
    ),
    "question_answerer": (
        "AutoModelForQuestionAnswering",
        'answerer = electra_tf.QuestionAnswerer.from_preset(".")\n'
        'print(answerer.predict([("Who sings?", "Anna sings in the choir.")]))',
    ),
}
_MEANINGS = {
    "masked_lm_loss": "loss of the masked language model",
    "masked_lm_accuracy": "its accuracy",
    "sampled_masked_lm_accuracy": "share of samples that equal the original token",
    "disc_loss": "loss of replaced-token detection",
    "disc_accuracy": "its accuracy",
    "disc_precision": "its precision",
    "disc_recall": "its recall",
    "disc_auc": "area under its ROC curve",
}


def model_card(model: "PretrainedModel", network: "Network") -> str:
    """Return a model card in Markdown: shape, data, settings, metrics, loading."""
    shape, role = network.shape, network.role
    numbers = sum(array.size for array in network.weights.values())
    kind = network.head.library if network.head else "electra"
    header = {"library_name": "transformers", "tags": [kind, "electra_tf"]}
    parts = [
        f"---\n{yaml.safe_dump(header)}---",
        f"# {kind.upper()} {role.replace('_', ' ')}",
        f"{shape.depth} layers, width {shape.width}, {shape.heads} heads, embeddings "
        f"{shape.embedding}, {shape.vocabulary_size:,} wordpieces, up to "
        f"{shape.max_positions} positions: {numbers:,} parameters.",
        _load(network, role == "discriminator" and len(model.networks) == 2),
    ]
    if network.head is not None and network.head.labels:
        title = "Tags" if role == "token_classifier" else "Classes"
        labels = ", ".join(f"`{label}`" for label in network.head.labels)
        parts.append(f"## {title}\n\n{labels}")
    if model.tokenizer is not None:
        parts.append(f"## Tokenizer\n\nWordPiece, {model.tokenizer.settings}.")
    return "\n\n".join([*parts, *_training(model)]) + "\n"


def _load(network: "Network", has_generator: bool) -> str:
    cls, own = _LOADERS[network.role]
    is_pair = network.head is not None and network.head.settings.get("pairs")
    own = own.replace("{text}", '("A film.", "A play.")' if is_pair else '"A film."')
    names = ["AutoTokenizer", cls]
    lines = [
        'tokenizer = AutoTokenizer.from_pretrained(".")',
        f'model = {cls}.from_pretrained(".")',
    ]
    if has_generator:
        names.insert(1, (other := _LOADERS["generator"][0]))
        lines.append(f'generator = {other}.from_pretrained(".", subfolder="generator")')
    return (
        f"## Load\n\n```python\nfrom transformers import {', '.join(names)}\n\n"
        + "\n".join(lines)
        + f"\n```\n\n```python\nimport electra_tf\n\n{own}\n```"
    )


def _training(model: "PretrainedModel") -> list[str]:
    """Return what is known of the training, as paragraphs."""
    run, parts = model.run, []
    if model.step:
        parts.append(f"{model.step:,} steps.")
    parts += [f"{name}: {value}." for name, value in run.get("facts", {}).items()]
    if run.get("metrics"):
        parts.append(_table(run["metrics"]))
    if run.get("settings"):
        settings = run["settings"].rstrip()
        parts.append(f"### Settings\n\n```yaml\n{settings}\n```")
    return ["## Training", *parts] if parts else []


def _table(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the metrics as a table with a column for each kind of records."""
    columns = list(metrics)
    known = [n for n in _MEANINGS if any(n in row for row in metrics.values())]
    lines = [
        _row(["metric", "", *columns]),
        _row(["---", "---", *["---:"] * len(columns)]),
    ]
    for name in known:
        values = (metrics[column].get(name) for column in columns)
        texts = ("" if value is None else f"{value:.4f}" for value in values)
        lines.append(_row([f"`{name}`", _MEANINGS[name], *texts]))
    return "### Metrics\n\n" + "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
