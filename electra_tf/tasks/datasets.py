"""Read the data of a task by its name: GLUE, tables, tagged sentences, SQuAD."""

from electra_tf.config.finetuning import DataConfig
from electra_tf.tasks import glue
from electra_tf.tasks.question_data import read_questions
from electra_tf.tasks.squad_json import PUBLISHED
from electra_tf.tasks.tag_data import read_tagging
from electra_tf.tasks.task_data import Notify, TaskData
from electra_tf.tasks.text_data import read_csv, read_glue
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.tokenizer import Tokenizer


def read_task(
    name: str,
    data: str,
    settings: DataConfig,
    log: DataErrorLog,
    notify: Notify = print,
    tokenizer: Tokenizer | None = None,
) -> TaskData:
    """Read the data of a task, and report its bad rows to the log.

    `tokenizer` splits texts to tag, which have spans of characters; None: BERT's rules.
    """
    if name in glue.TASKS:
        return read_glue(name, data, log)
    if name == "csv":
        return read_csv(data, settings, log, notify)
    if name in PUBLISHED:
        return read_questions(name, data, settings, log)
    return read_tagging(name, data, settings, log, notify, tokenizer)
