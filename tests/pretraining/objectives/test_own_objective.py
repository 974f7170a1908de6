"""An objective of one's own: its file, its settings, its name, and no other change."""

import json

import pytest

from tests import tiny
from tests.conftest import python

FILE = '''
from electra_tf.pretraining.objectives import common


class CopyObjective(common.Objective):
    """Predict the tokens at the drawn positions without masking them."""

    def losses(self, masked, context):
        logits_BMV = self.model(
            masked.input_ids_BL,
            **common.encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=context.layer_ops,
        )
        return common.masked_lm_losses(
            logits_BMV, masked, self.settings.generator_weight
        )
'''
# `OBJECTIVE_SETTINGS` and `OBJECTIVES` list the classes in the files of the package.
PROGRAM = """
import json, sys

from typing import Literal

from electra_tf.config import objectives
from electra_tf.config.fields import section


@section()
class Copy(objectives.MLM):
    name: Literal["copy"] = "copy"


objectives.OBJECTIVE_SETTINGS["copy"] = Copy

from electra_tf.pretraining.objectives import OBJECTIVES
from copy_objective import CopyObjective

OBJECTIVES["copy"] = CopyObjective

import electra_tf
from electra_tf import pretrain
from electra_tf.model.cost import step_flops
from electra_tf.training.metric_logger import read_metrics

pretrain.FLAGS(sys.argv)
pretrain.main()
run = pretrain.FLAGS.model_dir
try:
    electra_tf.load_config("tiny", ["objective.name=copy", "objective.main_weight=2"])
except electra_tf.InputError as error:
    message = str(error)
result = {
    "losses": [line["masked_lm_loss"] for line in read_metrics(run)],
    "flops": step_flops(electra_tf.load_config("tiny", ["objective.name=copy"])),
    "rule": electra_tf.TextScorer.from_preset(run).rule,
    "error": message,
}
print(json.dumps(result))
"""


@pytest.mark.runs
def test_an_objective_of_ones_own_is_trained_and_scores(folder, tmp_path):
    (tmp_path / "copy_objective.py").write_text(FILE)
    sets = [*tiny.SETS, "objective.name=copy", "training.steps=60"]
    sets += ["optimizer.learning_rate=0.01", "optimizer.warmup_steps=5"]
    sets += ["training.log_every=10"]
    result = python(
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}){PROGRAM}",
        f"--data={folder}",
        f"--model_dir={tmp_path / 'run'}",
        *(f"--set={item}" for item in sets),
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["losses"][-1] < found["losses"][0] - 0.3
    assert found["flops"] > 0
    assert found["rule"] == "pseudo_log_likelihood"
    assert "main_weight" in found["error"]
