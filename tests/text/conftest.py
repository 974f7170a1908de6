"""Records of a small synthetic corpus, built once."""

from electra_tf.settings import Config, Corpus, Records
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
