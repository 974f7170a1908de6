"""WordPiece vocabularies: read, check, identify."""

import dataclasses
import functools
import hashlib
import pathlib

from electra_tf.errors import InputError

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL_TOKENS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
)
CONTINUATION = "##"
_BYTE_ORDER_MARK = "\ufeff"
_BLANKS = " \t\r"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The pieces in order of id.

    Args:
        tokens: One entry per id; a piece that continues a word starts with `##`.
        source: Where it was read, for error messages.
        file: The content of the file it was read from, or None where there is none.

    Raises:
        InputError: A special token is missing, [PAD] is not id 0 (padding is written
            as 0), an entry stands twice or is blank.
    """

    tokens: tuple[str, ...]
    source: str = dataclasses.field(default="vocabulary", compare=False)
    file: str | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self):
        missing = [token for token in SPECIAL_TOKENS if token not in self.ids]
        if missing:
            raise InputError(
                f"A vocabulary holds {' '.join(SPECIAL_TOKENS)}, one entry a line",
                f"{self.source} with {len(self.tokens)} lines and without "
                + " ".join(missing),
                "Add them, or make a vocabulary with electra_tf.build_vocab",
            )
        if self.ids[PAD] != 0:
            raise InputError(
                f"{PAD} is the first entry, as padding is written as id 0",
                f"{self.source} with {PAD} on line {self.ids[PAD] + 1}",
                "Move it to the first line (the ids of the others change with it)",
            )
        if len(self.ids) != len(self.tokens):
            first: dict[str, int] = {}
            for line, token in enumerate(self.tokens, 1):
                if token in first:
                    break
                first[token] = line
            raise InputError(
                "Each entry of a vocabulary stands once",
                f"{self.source} with {token!r} on lines {first[token]} and {line}",
                "Remove the second one, or rename it to [unused1] to keep the ids",
            )

    @classmethod
    def read(cls, path: str | pathlib.Path) -> "Vocabulary":
        """Reads a file with one entry a line; the line's number is the id.

        Args:
            path: A UTF-8 text file, as BERT, ELECTRA and Hugging Face write it.

        Returns:
            The checked vocabulary.

        Raises:
            InputError: The file cannot be read or is not a vocabulary.
        """
        try:
            text = pathlib.Path(path).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                "A vocabulary is a readable UTF-8 file with one entry a line",
                str(error),
                "Check the path, or make one with electra_tf.build_vocab",
            ) from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str = "vocabulary") -> "Vocabulary":
        """Reads the content of a vocabulary's file.

        Entries are stripped of white space at both ends, as the original does. A line
        of nothing but other white space than blanks and tabs (BERT's Chinese
        vocabulary has one of U+2028) keeps it: no text becomes such a piece.

        Args:
            text: The content, with or without a byte-order mark.
            source: Where it was read, for error messages.

        Returns:
            The checked vocabulary, whose `text` is equal to the argument.

        Raises:
            InputError: The text is not a vocabulary.
        """
        lines = text.removeprefix(_BYTE_ORDER_MARK).removesuffix("\n").split("\n")
        lines = lines if text else []
        for number, line in enumerate(lines, 1):
            if not line.strip(_BLANKS):
                raise InputError(
                    "Each line of a vocabulary holds an entry",
                    f"{source} with line {number} blank",
                    "Remove the line, or write [unused1] there to keep the ids",
                )
        tokens = tuple(line.strip() or line.strip(_BLANKS) for line in lines)
        return cls(tokens, source, text)

    @property
    def text(self) -> str:
        """The content of a vocabulary's file, as `parse` takes it."""
        if self.file is not None:
            return self.file
        return "".join(f"{token}\n" for token in self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """From entry to id."""
        return {token: index for index, token in enumerate(self.tokens)}

    @functools.cached_property
    def sha256(self) -> str:
        """Identifies the entries and their order, whatever the file's line ends.

        Entries of white space alone count as empty: no text becomes such a piece.
        """
        entries = "\n".join(token.strip() for token in self.tokens)
        return hashlib.sha256(entries.encode()).hexdigest()

    @property
    def is_continuation(self) -> tuple[bool, ...]:
        """For each id, whether the piece continues a word (whole-word masking)."""
        return tuple(token.startswith(CONTINUATION) for token in self.tokens)
