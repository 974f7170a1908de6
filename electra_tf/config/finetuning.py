"""Settings of fine-tuning as frozen dataclasses; see `fields.py`.

These values are for encoders of the size of the paper's base. `tasks/defaults.py`
replaces them by those of the encoder at hand, `runs/finetuning.py` adds the published
ones of each task, and configs/finetune_*.yaml have the paper's for each size.
"""

from typing import Annotated, Literal

from pydantic import Field

from electra_tf.config.fields import Count, Positive, Rate, Seed, Share, Weight, section

COLUMNS = (
    "text_columns",
    "choice_columns",
    "label_column",
    "label_separator",
    "score_column",
    "spans_column",
    "split_column",
    "tag_names",
)
"""Settings of `DataConfig` that name columns and their values, flags of commands."""
Pooler = Literal["none", "gelu"]
Pooling = Literal["cls", "mean", "pair"]
POOLED_VECTORS: dict[Pooling, int] = {"cls": 1, "mean": 1, "pair": 4}
"""Width of a pooled text, in widths of the hidden states."""


@section()
class DataConfig:
    """Conversion of files to inputs of the encoder."""

    max_length: Annotated[int, Field(ge=8)] = 128
    """Positions of an input, at most. Longer texts are truncated, pairs in their longer
    text. Longer sentences to tag and SQuAD contexts are split into several inputs."""
    text_columns: tuple[str, ...] = ()
    """`csv`: column of the text, or the two columns of a pair. `tagging` of tables:
    column of the text or of the list of words. `choice`: column of the text, or columns
    of context and question. A name with a comma needs quotes:
    --text_columns='"a, b"'."""
    choice_columns: tuple[str, ...] = ()
    """`choice`: a column for each choice, or one column of lists. If empty,
    `text_columns` lists context, question and choices."""
    label_column: str | None = None
    """`csv`: column of the class. `tagging` of tables: column of the list of tags.
    `choice`: column of the right choice."""
    label_separator: Annotated[str, Field(min_length=1)] | None = None
    """`csv`: separator of the classes of a text in `label_column`. A text may then have
    any number of classes, also none; a list of JSON needs no separators."""
    score_column: str | None = None
    """`csv`: column of the score, in place of a class."""
    spans_column: str | None = None
    """`tagging` of tables: column of the spans of characters, if its name is not
    `entities`, `spans`, `ents`, `label` or `labels`."""
    split_column: str | None = None
    """`csv`: column of one table with the words train, dev (or validation, valid, val)
    and test."""
    tag_names: tuple[str, ...] = ()
    """`tagging` of tables: names of the tags that are written as 0, 1, 2, ..."""
    missing_text: Literal["error", "skip", "keep"] = "error"
    """Classes and scores of texts: rows whose text is missing, which is empty, `NaN`,
    `nan`, `None`, `NULL`, `N/A` or `<NA>`. `skip`: leave them out. `keep`: read them as
    texts, and None and NaN of Python as empty. GLUE's files are read as they are."""
    dev_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the training data that is held out if there is no dev file: the same
    share of each class, or whole articles of SQuAD."""
    split_seed: Seed = 0
    """Seed of the choice of held-out rows; the same for all trials."""
    double_unordered: bool = True
    """Train on both orders of the two texts where the order has no meaning (MRPC,
    STS-B)."""
    word_column: int = 0
    """`tagging`: index of the word's column; negative: counted from the last."""
    tag_column: int = -1
    """`tagging`: index of the tag's column; negative: counted from the last."""
    split_words: bool = False
    """`tagging`: train on words that are split as raw texts are, punctuation apart:
    `U.S.` is four words in one span. Scores of the commands count the words of the
    data, metrics of Keras the split ones."""
    tagging_segment: Literal[0, 1] = 0
    """`tagging`: segment id of the sentence. The original uses 1, the segment of second
    texts in pre-training."""
    max_query_length: Positive = 64
    """SQuAD: wordpieces of a question, at most; capped at half of `max_length`."""
    doc_stride: Positive = 128
    """SQuAD: wordpieces from the start of one window of the context to the next."""
    window_labels: Literal["exact", "original"] = "exact"
    """SQuAD: label of a window without the answer. `exact`: unanswerable. `original`:
    answerable, with the answer at [CLS]."""

    @property
    def query_limit(self) -> int:
        """Largest number of wordpieces of a question; the rest is dropped."""
        return min(self.max_query_length, self.max_length // 2)


@section()
class TaskModelConfig:
    """Dropout and initial weights of the encoder, and settings of the head."""

    weights: Literal["pretrained", "random"] = "pretrained"
    """Initial weights of the encoder; `random`: a baseline without pre-training."""
    dropout: Rate | None = None
    """Dropout rate of hidden states; null: that of pre-training, 0.1 at most, and 0.1
    for rows that are read ten times or more."""
    attention_dropout: Rate | None = None
    """Dropout rate of attention probabilities; null: as for `dropout`."""
    head_dropout: Rate = 0.1
    """Dropout rate of the vector of a text."""
    pooling: Pooling = "cls"
    """Classes and scores of texts: vector of a text. `cls`: that of [CLS], as in the
    original. `mean`: the mean of all positions. `pair`: the means u and v of the two
    texts, |u - v| and the terms of their cosine; for single texts the mean. A head
    with one output and no pooler begins as the cosine, whatever the seed."""
    pooler: Pooler = "none"
    """Classes and scores of texts: hidden layer of the head, between the vector of the
    text and the output. `none`: as in the original. `gelu`: the head of transformers'
    ElectraForSequenceClassification."""
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
    """Optimizer and learning rate schedule of fine-tuning."""

    name: Literal["adam", "adamw", "lamb"] = "adam"
    """Optimizer, as in pre-training."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    """Peak learning rate of the head; lower layers have lower rates."""
    warmup_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the steps over which the learning rate rises from 0."""
    decay_power: Weight = 1.0
    """Exponent of the decay (1 - step / steps)."""
    layer_decay: Share = 0.8
    """Ratio of the learning rates of a layer and the layer above it; 1: no decay. The
    rate of the last layer is multiplied by its square, as for the published scores."""
    weight_decay: Weight = 0.01
    """Decoupled weight decay, multiplied by the learning rate."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    """Constant in the denominator of the update."""
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Maximum global norm of the gradient; null: no clipping."""


@section()
class FitConfig:
    """Epochs, batches, precision and selection of weights."""

    epochs: Positive | None = None
    """Passes over the training data; null: 3, or more for few rows, by
    `tasks/defaults.py`."""
    batch_size: Positive = 32
    """Examples per update, over all replicas."""
    seed: Seed = 0
    """Seed of the first trial's head, dropout and order; each next trial adds 1."""
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    """Precision of the encoder. Weights, logits and losses are always float32."""
    reduction: Literal["mean", "sum"] = "mean"
    """Reduction of the losses of a batch. The original uses the sum, whose gradient
    exceeds `clip_norm` in nearly every step, so that all updates have one norm."""
    keep: Literal["last", "best"] = "last"
    """Weights of a trial that are evaluated and saved: those of the last epoch, as in
    the paper, or those of the epoch with the best dev score."""
    class_weight: Literal["balanced"] | None = None
    """Single classes of texts: `balanced` weights each class by the inverse of its
    share of the training data, as `fit(class_weight="balanced")` does."""
    early_stopping: Count = 0
    """Stop a trial after this number of epochs without a better dev score; 0: never."""


@section()
class FinetuningConfig:
    """All settings of fine-tuning.

    Example:
        import electra_tf

        settings = electra_tf.FinetuningConfig()
        settings.optimizer.learning_rate
        # `from_preset` also takes a dictionary, or the name or path of a config.
        settings = {"training.epochs": 1, "data.max_length": 64}
        electra_tf.TextClassifier.from_preset("run", num_classes=2, settings=settings)
    """

    data: DataConfig = DataConfig()
    model: TaskModelConfig = TaskModelConfig()
    optimizer: TaskOptimizerConfig = TaskOptimizerConfig()
    training: FitConfig = FitConfig()
