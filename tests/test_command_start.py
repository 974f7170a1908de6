"""Commands answer flags and paths that are wrong before they start TensorFlow."""

import json
import subprocess
import sys

from electra_tf.__main__ import COMMANDS
from tests.conftest import GOLDEN, ROOT

SAVED = GOLDEN / "saved"
RUN, CLASSIFIER, RECORDS = SAVED / "run", SAVED / "classifier", SAVED / "records"
VOCAB, LINES = RECORDS / "vocab.txt", RECORDS / "config.yaml"
TYPO = "--set=training.epoch=2"
# By the words of the error, arguments of commands that are right but for one.
WRONG = {
    "nosuch": {name: ["--nosuch=1"] for name in COMMANDS},
    "must be set": {name: [] for name in COMMANDS if name != "presets"},
    "gone": {
        "build_vocab": ["--input=gone", "--output=OUT"],
        "build_records": ["--input=gone", f"--vocab={VOCAB}", "--output=OUT"],
        "pretrain": ["--data=gone", "--model_dir=OUT"],
        "finetune": [
            "--task=rte",
            "--data=gone",
            f"--checkpoint={RUN}",
            "--output=OUT",
        ],
        "evaluate": [f"--checkpoint={RUN}", "--data=gone"],
        "predict": [f"--model={CLASSIFIER}", "--input=gone"],
        "score": [f"--checkpoint={RUN}", "--input=gone"],
    },
    "'gone' does not exist": {
        "pretrain": [f"--data={RECORDS}", "--model_dir=OUT", "--init_checkpoint=gone"],
        "finetune": ["--task=rte", "--data=.", "--checkpoint=gone", "--output=OUT"],
        "evaluate": ["--model=gone", f"--data={LINES}"],
        "predict": ["--model=gone", f"--input={LINES}"],
        "score": ["--checkpoint=gone", f"--input={LINES}"],
        "export": ["--model=gone", "--output=OUT"],
        "serve": ["--model=gone"],
        "convert": ["--from=gone", "--to=OUT"],
    },
    "training.epoch": {
        "build_vocab": [f"--input={LINES}", "--output=OUT", TYPO],
        "build_records": [f"--input={LINES}", f"--vocab={VOCAB}", "--output=OUT", TYPO],
        "pretrain": [f"--data={RECORDS}", "--model_dir=OUT", TYPO],
        "finetune": [
            *("--task=rte", "--data=.", f"--checkpoint={RUN}", "--output=OUT", TYPO)
        ],
    },
}
PROGRAM = """
import importlib, json, sys
from absl import flags
from electra_tf import cli
answers = []
for words, name, arguments in json.load(sys.stdin):
    module = importlib.import_module(f"electra_tf.{name}")
    module.FLAGS.unparse_flags()
    for flag in module.FLAGS:
        module.FLAGS[flag].unparse()
    sys.argv = [name, *arguments]
    try:
        cli.run(module.main, module.FLAGS, module.__doc__)
        code = ""
    except SystemExit as error:
        code = error.code
    heavy = {"tensorflow", "keras", "tensorflow_datasets", "scipy"} & {*sys.modules}
    answers.append((words, name, code, sorted(heavy)))
print(json.dumps(answers), file=sys.stderr)
"""


def test_help_and_errors_need_no_tensorflow(tmp_path):
    cases = [("", name, ["--help"]) for name in COMMANDS]
    for words, commands in WRONG.items():
        for name, arguments in commands.items():
            given = [a.replace("=OUT", f"={tmp_path / 'out'}") for a in arguments]
            cases.append((words, name, given))
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    answers = json.loads(result.stderr.splitlines()[-1])
    assert len(answers) == len(cases)
    for words, name, message, heavy in answers:
        assert not heavy, (name, words)
        assert words in message, (name, message)
        assert bool(words) == bool(message), (name, message)
    assert not list(tmp_path.iterdir())
