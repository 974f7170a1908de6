"""Settings of fine-tuning as frozen dataclasses; see `pretraining.py`.

configs/finetune_*.yaml hold the published settings of each model size,
`runs/finetuning.py` those of each task. Both override these defaults.
"""

from typing import Annotated, Literal

from pydantic import Field

from electra_tf.config.pretraining import (
    Count,
    Positive,
    Rate,
    Seed,
    Share,
    Weight,
    section,
)


@section()
class DataConfig:
    """How files become what the encoder reads."""

    max_length: Annotated[int, Field(ge=8)] = 128
    """Positions of an input at most. Longer pairs lose pieces of the longer text,
    sentences to tag and contexts to search are read in several parts."""
    text_columns: tuple[str, ...] = ()
    """`csv`: the column of the text, or the two of a pair."""
    label_column: str | None = None
    """`csv`: the column of the class."""
    score_column: str | None = None
    """`csv`: the column of a number to predict, instead of a class."""
    dev_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the training data that is measured on where there is no dev file; each
    class gives its share, SQuAD whole articles."""
    split_seed: Seed = 0
    """Decides that share, in all trials alike."""
    double_unordered: bool = True
    """Tasks whose two texts may change places are trained on both orders."""
    word_column: int = 0
    """`tagging`: the column of the word; negative ones count from the last."""
    tag_column: int = -1
    """`tagging`: the column of the tag."""
    tagging_segment: Literal[0, 1] = 0
    """The segment of a sentence to tag; the original's is 1, which pre-training keeps
    for second texts."""
    max_query_length: Positive = 64
    """SQuAD: pieces of a question at most; never more than half of max_length."""
    doc_stride: Positive = 128
    """SQuAD: pieces from the beginning of one window of the context to the next's."""
    window_labels: Literal["exact", "original"] = "exact"
    """SQuAD: what a window without its question's answer counts as: unanswerable, or
    answerable at [CLS], as in the original."""
    on_error: Literal["stop", "report"] = "stop"
    """Stop at the first bad row, or leave such rows out, count and list them."""


@section()
class TaskModelConfig:
    """The encoder's dropout and the head's shape."""

    weights: Literal["pretrained", "random"] = "pretrained"
    """What the encoder begins with; random weights show what pre-training is worth."""
    dropout: Rate = 0.1
    """Share of hidden values zeroed in training."""
    attention_dropout: Rate = 0.1
    """Share of attention probabilities zeroed in training."""
    head_dropout: Rate = 0.1
    """Share of the [CLS] vector zeroed in training."""
    start_n_top: Positive = 20
    """SQuAD: candidates for the start of an answer, and for the end of each start."""
    joint_prediction: bool = True
    """SQuAD: predict the end of an answer given its start, not independently of it."""
    answerable: bool = True
    """SQuAD: predict with a separate classifier whether a question has an answer."""
    answerable_weight: Weight = 0.5
    """SQuAD: factor of the loss of that classifier."""
    n_best: Positive = 20
    """SQuAD: candidate answers per question in `nbest.json`."""
    max_answer_length: Positive = 30
    """SQuAD: wordpieces per answer, at most."""


@section()
class TaskOptimizerConfig:
    """How gradients become updates."""

    name: Literal["adam", "adamw", "lamb"] = "adam"
    """As in pre-training."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    """The head's peak; lower layers have lower ones."""
    warmup_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the steps over which the rate rises from 0."""
    decay_power: Weight = 1.0
    """The rate falls with (1 - step / steps) to this power."""
    layer_decay: Share = 0.8
    """Factor of the rate from one layer to the one below it; 1: none."""
    layer_rule: Literal["original", "exact"] = "original"
    """`original`: the last layer already has its square, as published scores do.
    `exact`: the last layer has this factor."""
    weight_decay: Weight = 0.01
    """Decoupled weight decay, a factor of the learning rate."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    """Added to the root of the squares' mean."""
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest norm of the whole gradient; null: unlimited."""


@section()
class FitConfig:
    """How long, how exact, and what is kept."""

    epochs: Positive = 3
    """Passes over the training data."""
    batch_size: Positive = 32
    """Examples of an update, over all replicas."""
    seed: Seed = 0
    """The first trial's: its head, dropout and order. The next trial's is one more."""
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    """Arithmetic of the encoder. Weights, logits and losses are float32 in both."""
    reduction: Literal["mean", "sum"] = "mean"
    """The loss of a batch. The original's is the sum, which clipping then cuts to
    size: every gradient has the same norm, however sure the model is."""
    length_buckets: bool = True
    """Batches of texts of like length, so that short ones do not pay for long ones."""
    keep: Literal["last", "best"] = "last"
    """The weights of a trial that are measured and kept: the last epoch's, as in the
    paper, or those of the epoch with the best score on the dev data."""
    early_stopping: Count = 0
    """Epochs without a better score on the dev data after which a trial ends; 0:
    never."""


@section()
class FinetuningConfig:
    """All settings of fine-tuning.

    Example:
        import electra_tf

        sets = ["training.epochs=1", "data.max_length=64"]
        settings = electra_tf.load_config(sets=sets, root=electra_tf.FinetuningConfig)
        electra_tf.TextClassifier.from_preset("run", num_classes=2, settings=settings)
    """

    data: DataConfig = DataConfig()
    model: TaskModelConfig = TaskModelConfig()
    optimizer: TaskOptimizerConfig = TaskOptimizerConfig()
    training: FitConfig = FitConfig()
