"""Tasks of one tag for each word: chunks, names, parts of speech."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.task_settings import Data, Finetuning
from electra_tf.tasks.columns import Sentence, read_columns
from electra_tf.tasks.inputs import Examples
from electra_tf.tasks.spans import OUTSIDE, is_span_scheme, to_bioes
from electra_tf.tasks.start import Start
from electra_tf.tasks.tagger import TextTagger
from electra_tf.tasks.tagging_features import tag_vocabulary
from electra_tf.tasks.tagging_scoring import score_spans, score_tokens
from electra_tf.tasks.task import Part, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.archives import SUFFIXES
from electra_tf.text.problems import Problem, ProblemLog

_ENDINGS = (".txt", ".conll", ".tsv", ".bio", ".iob2", "")


class TaggingTask(Task):
    """Tags of words; where they mark spans, spans are what counts.

    Args:
        name: As typed.
        parts: By name; items are sentences, targets their tags.
    """

    def __init__(self, name: str, parts: dict[str, Part]):
        self.tags = tag_vocabulary(parts["train"].items)
        self.spans = is_span_scheme(self.tags)
        super().__init__(name, parts, "f1" if self.spans else "accuracy")

    def model(self, start: Start, settings: Finetuning, seed: int) -> TextModel:
        """A tagger."""
        return TextTagger(start, self.tags, settings, seed)

    def training_examples(self, model: TextModel) -> Examples:
        """The training sentences."""
        part = self.parts["train"]
        return model.examples(part.items, part.targets)

    def score(self, part: Part, predictions: Any) -> dict[str, float]:
        """F1 as conlleval counts it, or the share of right tags."""
        scorer = score_spans if self.spans else score_tokens
        found = scorer(part.targets, predictions)
        names = ("f1", "precision", "recall", "accuracy")
        return {name: found[name] for name in names if name in found}

    def degenerate(self, part: Part, predictions: Any) -> str | None:
        """Whether every word gets the same tag."""
        said = {tag for tags in predictions for tag in tags}
        if len(said) > 1:
            return None
        return "finds no span" if said == {OUTSIDE} else f"always says {said.pop()}"

    def write(self, part: Part, predictions: Any, path: str) -> None:
        """Columns: word, the right tag if it is known, the predicted one."""
        lines = []
        for sentence, said in zip(part.items, predictions, strict=True):
            gold = [] if sentence.tags is None else [sentence.tags]
            rows = zip(sentence.words, *gold, said, strict=True)
            lines += [" ".join(row) for row in rows] + [""]
        pathlib.Path(f"{path}.txt").write_text("\n".join(lines) + "\n", "utf-8")


def tagging_task(name: str, data: str, settings: Data, log: ProblemLog) -> TaggingTask:
    """Reads column files.

    Args:
        name: `chunking` or `tagging`.
        data: A folder with train.txt, and perhaps dev.txt and test.txt (or .conll and
            other endings, .gz or .xz); or a file.
        settings: The columns; the share of train that dev is where it is missing.
        log: Where bad lines are told.

    Returns:
        The task.

    Raises:
        InputError: No such files, a bad line, a file without a usable sentence.
    """
    found = {}
    for part in ("train", "dev", "test"):
        if path := _find(data, part):
            columns = settings.word_column, settings.tag_column
            found[part] = read_columns(path, *columns, log)
    if "train" not in found:
        raise InputError(
            "--data is a column file, or a folder with train.txt and perhaps dev.txt "
            "and test.txt (also .conll, .tsv, .bio, .gz, .xz)",
            f"{data!r}, where there is no such file",
            "Check the path",
        )
    for part, sentences in found.items():
        if not sentences:
            raise InputError(
                "Each file has one usable sentence or more",
                f"{_find(data, part)} with none",
                "Mend what was told of it",
            )
    if "dev" not in found:
        found = _split(found, settings, data)
    tags = tag_vocabulary(found["train"])
    for part in _without(found, "train"):
        found[part] = [s for s in found[part] if _is_known(s, tags, log)]
        if not found[part]:
            raise InputError(
                f"The training data has the tags of a sentence of {part} or more",
                f"none of them; known: {', '.join(tags)}",
                "Check that both have the same kind of tags",
            )
    return TaggingTask(name, {part: _part(s) for part, s in found.items()})


def _split(found: dict[str, Any], settings: Data, data: str) -> dict[str, Any]:
    """Splits dev off."""
    sentences = found["train"]
    draw = np.random.default_rng(settings.split_seed)
    count = max(1, round(len(sentences) * settings.dev_share))
    held_out = set(draw.permutation(len(sentences))[:count].tolist())
    if count >= len(sentences):
        raise InputError(
            "Training data is two sentences or more, where dev is split off it",
            f"{len(sentences)} in {data}",
            "Give more, or a dev file",
        )
    dev = [s for place, s in enumerate(sentences) if place in held_out]
    train = [s for place, s in enumerate(sentences) if place not in held_out]
    return {"train": train, "dev": dev, **_without(found, "train")}


def _is_known(sentence: Sentence, tags: Sequence[str], log: ProblemLog) -> bool:
    """Whether the training data has all tags of a sentence; tells where not."""
    own = sentence.tags
    if is_span_scheme(tags) and is_span_scheme(own):
        own = to_bioes(own)
    for place, tag in enumerate(own):
        if tag not in tags:
            detail = f"{sentence.tags[place]!r}; its sentence not read"
            remedy = f"Mend it, or add to the training data; known: {', '.join(tags)}"
            where = sentence.source, sentence.line + place
            log.add(Problem(*where, "a tag training does not have", detail, remedy))
            return False
    return True


def _find(data: str, part: str) -> str | None:
    if os.path.isfile(data):
        return data if part == "train" else None
    for ending in _ENDINGS:
        for suffix in SUFFIXES:
            path = os.path.join(data, f"{part}{ending}{suffix}")
            if os.path.isfile(path):
                return path
    return None


def _part(sentences: list[Sentence]) -> Part:
    return Part(sentences, [sentence.tags for sentence in sentences])


def _without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name}
