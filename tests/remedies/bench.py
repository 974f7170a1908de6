"""Files and calls with which these tests follow the remedies of errors.

A case is a function of a `Bench`. It returns a call that must fail, then a call for
each remedy of its error, which must succeed. No text is compared.
"""

import functools
import json
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import keras
import pytest
import tiny
from conftest import GOLDEN

from electra_tf.config.data import CorpusConfig
from electra_tf.config.loader import load_config
from electra_tf.errors import InputError
from electra_tf.runs.experiment import Experiment
from electra_tf.tasks.evaluation import evaluate_model
from electra_tf.tasks.prediction_inputs import read_items
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog

SAVED, INTEROP = GOLDEN / "saved", GOLDEN / "interop"
RUN, RECORDS = SAVED / "run", SAVED / "records"
STEP = RUN / "checkpoints" / "step_00000004"
VOCAB = GOLDEN / "vocab.txt"
DISCRIMINATOR = INTEROP / "huggingface_discriminator"
GENERATOR = INTEROP / "huggingface_generator"

TAGS = "the O\nfirst B-X\n\nof O\nall O\n\n" * 4

Calls = Sequence[Callable[[], Any]]
"""A call that fails, then a call for each remedy of its error."""


class Bench:
    """A folder for the files of a case, and ways to try them."""

    def __init__(self, folder: pathlib.Path, here: Callable[..., Any]):
        self.folder, self._here = folder, here

    def path(self, name: str) -> pathlib.Path:
        return self.folder / name

    def file(self, name: str, content: Any) -> pathlib.Path:
        """Write text, bytes, or a value as JSON."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def copy(self, source: pathlib.Path, name: str) -> pathlib.Path:
        return pathlib.Path(shutil.copytree(source, self.folder / name))

    def edit(self, path: pathlib.Path, **values: Any) -> None:
        """Set keys of a JSON file; None deletes one."""
        tree = json.loads(path.read_text()) | values
        tree = {key: value for key, value in tree.items() if value is not None}
        path.write_text(json.dumps(tree))

    def reading(self, read: Callable, name: str, *contents: Any) -> Calls:
        """Return calls that read a file of each content."""
        return [
            lambda content=content: consume(read(str(self.file(name, content))))
            for content in contents
        ]

    def running(
        self, command: str, *flags: Sequence[Any], base: Sequence[Any] = (), **more: str
    ) -> Calls:
        """Return calls that run a command with `base` and each list of flags."""
        return [lambda one=one: self.run(command, *base, *one, **more) for one in flags]

    def run(self, command: str, *flags: Any, input: str = "") -> str:
        result = self._here(command, *flags, input=input)
        if result.returncode:
            raise InputError("the command must succeed", result.stderr, "")
        return result.stdout


def consume(result: Any) -> Any:
    """Run a generator to its end."""
    return list(result) if hasattr(result, "__next__") else result


@functools.cache
def saved_model(name: str) -> keras.Model:
    """Return a fine-tuned model of the golden artefacts."""
    return tiny.load(str(SAVED / name))


def read_corpus(path: str, **settings: Any) -> list:
    """Return the documents of a file or glob."""
    log = DataErrorLog("stop", "")
    return list(CorpusReader([path], CorpusConfig(**settings), log))


def read_inputs(model: str, path: str, columns: Sequence[str] | None = None) -> list:
    """Return the inputs for a golden model in a file."""
    return list(read_items(saved_model(model), path, columns))


def evaluate(model: str, path: Any, texts: Any = ()) -> dict[str, Any]:
    """Score a golden model on a file or folder."""
    return evaluate_model(saved_model(model), None, str(path), {"text_columns": texts})


def resolve(*sets: str, data: Any = RECORDS, vocab: Any = None) -> Experiment:
    """Return the experiment of the golden run, with other settings."""
    config, vocab = str(STEP / "config.yaml"), vocab and str(vocab)
    return Experiment.resolve(
        str(data), vocab, lambda stored: load_config(config, sets, base=stored)
    )


def squad(**changes: Any) -> dict[str, Any]:
    """Return SQuAD's layout of two articles, with changes of the first question."""
    articles = []
    for number in range(2):
        answers = [{"text": "first", "answer_start": 4}]
        qa = {"id": f"{number}", "question": "which?", "answers": answers}
        if not number:
            qa |= changes.get("qa", {})
        paragraph = {"context": "the first of all", "qas": [qa]}
        articles.append({"title": f"{number}", "paragraphs": [paragraph]})
    articles[0]["paragraphs"][0] |= changes.get("paragraph", {})
    return {"data": articles[: changes.get("count", 2)]}


def remedy_test(**tables: dict[str, Callable[[Bench], Calls]]) -> Callable:
    """Return a test of the cases of all tables.

    The first call of a case must fail, and the others, its remedies, must succeed.
    """
    cases = {
        f"{t}: {n}": case for t, table in tables.items() for n, case in table.items()
    }

    @pytest.mark.parametrize("case", cases.values(), ids=cases.keys())
    def test_a_remedy_works(case, here, tmp_path):
        bad, *remedies = case(Bench(tmp_path, here))
        with pytest.raises(InputError):
            bad()
        assert remedies
        for remedy in remedies:
            remedy()

    return test_a_remedy_works
