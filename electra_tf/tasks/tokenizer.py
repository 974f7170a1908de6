"""The tokenizer with its files: those of this package and of other libraries."""

import os

from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import open_tokenizer


class Tokenizer(WordPieceTokenizer):
    """Map text to WordPiece ids.

    Text never produces a special token: "[MASK]" becomes `[`, `mask`, `]`. The entries
    of `settings.keep_whole` are found in the text before it is split.

    Args:
        vocabulary: The vocabulary.
        settings: Options of normalization.

    Example:
        import electra_tf

        tokenizer = electra_tf.Tokenizer.from_preset("run")
        tokenizer(["A fine film.", "Dull."])  # token_ids, segment_ids, padding_mask
        tokenizer.tokenize("A fine film.")  # wordpieces
        tokenizer.decode(tokenizer.encode("A fine film."))  # "a fine film."
    """

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Tokenizer":
        """Read a vocabulary and the settings stored with it.

        Args:
            path: A file with one entry per line, a `tokenizer.json`, or a folder with
                one of them; the files beside it are those of this package, Hugging Face
                or KerasHub.

        Returns:
            The tokenizer, with default settings if no file has any.

        Raises:
            InputError: There is no vocabulary, or it is not BERT's WordPiece.
        """
        return cls.of(open_tokenizer(path).tokenizer())

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        vocabulary: str | os.PathLike | None = None,
    ) -> "Tokenizer":
        """Load the tokenizer of a model.

        Args:
            path_or_name: A source as for `Encoder.from_preset`, or a vocabulary as for
                `read`.
            vocabulary: Path of the vocabulary; only for a config or another library.

        Raises:
            InputError: The source is damaged, or its kind is unknown.
        """
        # The readers of models import TensorFlow, which takes seconds.
        from electra_tf.sources import model_tokenizer

        return cls.of(model_tokenizer(path_or_name, vocabulary))

    @classmethod
    def of(cls, tokenizer: WordPieceTokenizer) -> "Tokenizer":
        """Return a tokenizer with the vocabulary and settings of another one."""
        return cls(tokenizer.vocabulary, tokenizer.settings)
