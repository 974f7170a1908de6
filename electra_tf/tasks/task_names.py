"""Names of the tasks, without the readers of their data, which need TensorFlow."""

from electra_tf.tasks import glue
from electra_tf.tasks.squad_json import PUBLISHED

TASK_NAMES = (*glue.TASKS, *PUBLISHED, "chunking", "tagging", "csv")
"""Tasks that `read_task` reads."""
