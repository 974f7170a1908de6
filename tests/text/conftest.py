"""Records of a small synthetic corpus, built once."""

from electra_tf.config.pretraining import CorpusConfig, PretrainingConfig, RecordsConfig
from electra_tf.text.builder import build
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog


def build_records(corpus_file, output, vocabulary, *, workers=1, **settings):
    """Build records through the library, as the command line does."""
    overwrite = settings.pop("overwrite", False)
    config = PretrainingConfig(records=RecordsConfig(**settings))
    log = DataErrorLog("stop", output / "_building" / "problems.txt")
    reader = CorpusReader([str(corpus_file)], CorpusConfig(), log)
    return build(
        reader,
        log,
        vocabulary,
        config,
        output,
        workers=workers,
        overwrite=overwrite,
    )
