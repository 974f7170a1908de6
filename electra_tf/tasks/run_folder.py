"""Names of the files in the output folder of finetune.

output/
  config.yaml       the settings; can be passed as --config
  trials.jsonl      a line for each finished trial
  model.keras       the trial with the best score on the dev split
  trial_1/          predictions for each split, TensorBoard's files
"""

import os

from electra_tf.interop.keras_file import SETTINGS as CONFIG
from electra_tf.interop.task_heads import MODEL

TRIALS, RESULTS = "trials.jsonl", "results.json"

__all__ = ["CONFIG", "MODEL", "RESULTS", "TRIALS", "trial_folder"]


def trial_folder(output: str | os.PathLike, number: int) -> str:
    """Return the folder of a trial."""
    return os.path.join(output, f"trial_{number}")
