"""All tasks: the one place where a name of data, or a kind of model, is found.

The commands check the names before TensorFlow starts, so the modules are imported when
a task is first asked for.
"""

import functools
import importlib
from typing import TYPE_CHECKING

from electra_tf.tasks.data import glue

if TYPE_CHECKING:
    from electra_tf.tasks.task import Task
    from electra_tf.tasks.text_model import TextModel

# A task's kind of models (`kind`, or `metric_kind` of sets of classes), its class in a
# module of this folder, and names of data.
_TASKS = (
    ("classifier", "text_task.ClassificationTask", ("csv", *glue.TASKS)),
    ("label_sets", "text_task.LabelSetTask", ()),
    ("regressor", "text_task.RegressionTask", ()),
    ("token_classifier", "tag_task.TagTask", ("chunking", "tagging")),
    ("choice_classifier", "choice_task.ChoiceTask", ("choice",)),
    ("question_answerer", "question_task.QuestionTask", ("squad1", "squad2")),
)
TASK_NAMES = tuple(name for *_, names in _TASKS for name in names)
"""Values of --task: GLUE, SQuAD, and kinds of files."""


@functools.cache
def _task(path: str) -> "Task":
    module, name = path.split(".")
    return getattr(importlib.import_module(f"electra_tf.tasks.{module}"), name)()


def named(name: str) -> "Task":
    """Return the task of a value of --task."""
    return next(_task(path) for _, path, names in _TASKS if name in names)


def of(model: "TextModel") -> "Task":
    """Return the task of a model; a class of one's own has that of plain texts."""
    paths = {kind: path for kind, path, _ in _TASKS}
    kind = model.metric_kind if model.metric_kind in paths else model.kind
    return _task(paths.get(kind, "task.Task"))


def models() -> list[type["TextModel"]]:
    """Return the classes of models of all tasks."""
    return [model for _, path, _ in _TASKS for model in _task(path).models]
