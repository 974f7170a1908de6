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


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The pieces in order of id.

    Args:
        tokens: One entry per id; a piece that continues a word starts with `##`.
        source: Where it was read, for error messages.

    Raises:
        InputError: A special token is missing, [PAD] is not id 0 (padding is written
            as 0), an entry stands twice or is blank.
    """

    tokens: tuple[str, ...]
    source: str = dataclasses.field(default="vocabulary", compare=False)

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
            text = pathlib.Path(path).read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                "A vocabulary is a readable UTF-8 file with one entry a line",
                str(error),
                "Check the path, or make one with electra_tf.build_vocab",
            ) from error
        lines = text.removesuffix("\n").split("\n") if text else []
        for number, line in enumerate(lines, 1):
            if not line.strip(" \t\r"):
                raise InputError(
                    "Each line of a vocabulary holds an entry",
                    f"{path} with line {number} blank",
                    "Remove the line, or write [unused1] there to keep the ids",
                )
        # U+2028 is an entry of BERT's Chinese vocabulary; stripped, as the original
        # does, it becomes an entry that no text can reach.
        return cls(tuple(line.strip() for line in lines), str(path))

    @property
    def text(self) -> str:
        """The content of a vocabulary's file, as `read` takes it."""
        return "".join(f"{token}\n" for token in self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """From entry to id."""
        return {token: index for index, token in enumerate(self.tokens)}

    @functools.cached_property
    def sha256(self) -> str:
        """Identifies the entries and their order, whatever the file's line ends."""
        return hashlib.sha256("\n".join(self.tokens).encode()).hexdigest()

    @property
    def is_continuation(self) -> tuple[bool, ...]:
        """For each id, whether the piece continues a word (whole-word masking)."""
        return tuple(token.startswith(CONTINUATION) for token in self.tokens)
