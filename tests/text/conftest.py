"""Records of a small synthetic corpus, built once."""

import json
import random

import pytest
from conftest import GOLDEN

from electra_tf.config import Config, Corpus, Records
from electra_tf.text.builder import build
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.problems import ProblemLog


def build_records(corpus_file, output, vocabulary, *, workers=1, **settings):
    """Builds records through the library, as the command line does."""
    overwrite = settings.pop("overwrite", False)
    config = Config(records=Records(**settings))
    problems = ProblemLog("stop", output / "_building" / "problems.txt")
    reader = CorpusReader([str(corpus_file)], Corpus(), problems)
    return build(
        reader,
        problems,
        vocabulary,
        config,
        output,
        workers=workers,
        overwrite=overwrite,
    )


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory):
    """200 documents of the golden text's words, no two lines alike."""
    golden = json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"]
    words, rng = " ".join(golden).split(), random.Random(0)
    lines = []
    for _ in range(200):
        lines += [
            " ".join(rng.choices(words, k=rng.randint(3, 25)))
            for _ in range(rng.randint(1, 14))
        ]
        lines.append("")
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory, corpus_file, vocabulary):
    """A folder of records of 32 positions in five shards."""
    output = tmp_path_factory.mktemp("records") / "out"
    build_records(corpus_file, output, vocabulary, max_length=32, shards=5)
    return output
