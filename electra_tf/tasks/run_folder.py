"""Names of the files in the output folder of finetune, and its first line.

output/
  config.yaml       the settings; can be passed as --config
  trials.jsonl      a line for each finished trial
  model.keras       the trial with the best score on the dev split
  trial_1/          predictions for each split, TensorBoard's files
"""

import json
import os

from electra_tf.interop.task_heads import MODEL

CONFIG, TRIALS, RESULTS = "config.yaml", "trials.jsonl", "results.json"
_MAX_LINE = 1 << 20  # characters of the first line of a config.yaml

__all__ = ["CONFIG", "MODEL", "RESULTS", "TRIALS", "stored_task", "trial_folder"]


def trial_folder(output: str | os.PathLike, number: int) -> str:
    """Return the folder of a trial."""
    return os.path.join(output, f"trial_{number}")


def stored_task(path: str) -> str | None:
    """Return the name of the task that a model was trained on; None: unknown."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        with open(os.path.join(folder, CONFIG), encoding="utf-8") as file:
            return json.loads(file.readline(_MAX_LINE).strip("#"))["task"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
