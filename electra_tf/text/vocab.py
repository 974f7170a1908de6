"""WordPiece vocabularies: file format, validation and checksum."""

import collections
import dataclasses
import functools
import hashlib
import pathlib

from electra_tf.errors import InputError
from electra_tf.text.files import HEAD_BYTES, check_format
from electra_tf.untrusted_files import read_small_file

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL_TOKENS
CONTINUATION = "##"
# First characters of entries that begin a word, in other kinds of vocabularies.
_OTHER_KINDS = {"\u2581": "SentencePiece", "\u0120": "byte-level BPE"}
_BYTE_ORDER_MARK = "\ufeff"
_BLANKS = " \t\r"
_MAX_TOKENS = 1_000_000  # a tokenizer writes an id as one Unicode character
_MAX_BYTES = 1 << 24  # of a vocabulary file


@dataclasses.dataclass(frozen=True, repr=False)
class Vocabulary:
    """WordPiece vocabulary: the entries in order of id.

    Args:
        tokens: One entry per id; a wordpiece that continues a word starts with `##`.
        source: Path of the file, for error messages.
        content: Content of the file, or None for a vocabulary that has no file.

    Raises:
        InputError: A special token is missing, or an entry is duplicated.

    Example:
        import electra_tf

        vocabulary = electra_tf.Vocabulary.read("records/vocab.txt")
        vocabulary.ids["[MASK]"]
    """

    tokens: tuple[str, ...]
    source: str = dataclasses.field(default="vocabulary", compare=False)
    content: str | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self):
        if not all(isinstance(token, str) for token in self.tokens):
            raise InputError(f"Each entry of {self.source} must be text")
        size = len(self.tokens)
        if size > _MAX_TOKENS:
            raise InputError(
                f"{self.source} has {size:,} entries, and a vocabulary at most "
                f"{_MAX_TOKENS:,}"
            )
        for mark, kind in _OTHER_KINDS.items():
            count = sum(token.startswith(mark) for token in self.tokens)
            if count > size / 20:
                raise InputError(
                    f"{self.source} must be a vocabulary of BERT's WordPiece, not of "
                    f"{kind}: {count:,} of {size:,} entries begin with {mark!r}"
                )
        if missing := [token for token in SPECIAL_TOKENS if token not in self.ids]:
            raise InputError(
                f"{self.source} must contain {' '.join(SPECIAL_TOKENS)}, one per line, "
                f"but its {size} lines lack {' '.join(missing)}; use the vocabulary "
                "that the model was trained with"
            )
        if len(self.ids) != size:
            counts = collections.Counter(self.tokens)
            token = next(token for token in self.tokens if counts[token] > 1)
            lines = [n for n, other in enumerate(self.tokens, 1) if other == token]
            raise InputError(
                f"Each entry of {self.source} must be unique, but {token!r} is on "
                f"lines {lines[0]} and {lines[1]}; an unused name such as [unused1] "
                "keeps the ids"
            )

    @classmethod
    def read(cls, path: str | pathlib.Path) -> "Vocabulary":
        """Read a vocabulary file; the line number, from 0, is the id.

        Args:
            path: A UTF-8 text file with one entry per line, as BERT, ELECTRA and
                Hugging Face write it.

        Returns:
            The validated vocabulary.

        Raises:
            InputError: The file cannot be read or is not a vocabulary.
        """
        try:
            content = read_small_file(path, _MAX_BYTES)
            check_format(path, content[:HEAD_BYTES])
            text = content.decode("utf-8")
        except FileNotFoundError as error:
            raise InputError(f"The vocabulary {path} does not exist") from error
        except OSError as error:
            raise InputError(f"The vocabulary cannot be read: {error}") from error
        except UnicodeDecodeError as error:
            raise InputError(
                f"The vocabulary {path} must be UTF-8 text with one entry per line, "
                f"not another encoding or a binary file (SentencePiece): {error}"
            ) from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str = "vocabulary") -> "Vocabulary":
        """Parse the content of a vocabulary file.

        White space around entries is removed, as in the original. A line that
        consists of white space other than blanks and tabs remains an entry
        (BERT's Chinese vocabulary has U+2028); no text is tokenized to it.

        Args:
            text: The content, with or without a byte-order mark.
            source: Path of the file, for error messages.

        Returns:
            The validated vocabulary; its `text` equals the argument.

        Raises:
            InputError: The text is not a vocabulary.
        """
        lines = text.removeprefix(_BYTE_ORDER_MARK).removesuffix("\n").split("\n")
        lines = lines if text else []
        for number, line in enumerate(lines, 1):
            if not line.strip(_BLANKS):
                raise InputError(
                    f"{source} must have an entry on each line, but line {number} is "
                    "blank; an unused name such as [unused1] keeps the ids"
                )
        tokens = tuple(line.strip() or line.strip(_BLANKS) for line in lines)
        return cls(tokens, source, text)

    @property
    def text(self) -> str:
        """Content of the vocabulary file, which `parse` reads."""
        if self.content is not None:
            return self.content
        return "".join(f"{token}\n" for token in self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<Vocabulary of {len(self):,} entries, {self.source}>"

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """Mapping from entry to id."""
        return {token: index for index, token in enumerate(self.tokens)}

    @functools.cached_property
    def sha256(self) -> str:
        """Checksum of the entries in order, independent of the file's line ends.

        An entry of white space alone counts as empty; no text is tokenized to it.
        """
        entries = "\n".join(token.strip() for token in self.tokens)
        return hashlib.sha256(entries.encode()).hexdigest()

    @property
    def is_continuation(self) -> tuple[bool, ...]:
        """Whether each id continues a word (for whole-word masking)."""
        return tuple(token.startswith(CONTINUATION) for token in self.tokens)
