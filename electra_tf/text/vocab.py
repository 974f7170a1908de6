"""WordPiece vocabularies: file format, validation and checksum."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import pathlib
from collections.abc import Container, Sequence

from electra_tf.errors import InputError
from electra_tf.text.files import HEAD_BYTES, check_format, encoding_remedy
from electra_tf.untrusted_files import read_small_file

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL_TOKENS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
)
CONTINUATION = "##"
OTHER_TOKENIZER = (
    "This package has BERT's WordPiece alone. Name a model with this tokenizer, or "
    "train a vocabulary with electra-tf build_vocab and pre-train with it"
)
"""Remedy where a tokenizer is of another kind."""
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
        InputError: A special token is missing, [PAD] is not id 0 (padding is written
            as 0), or an entry is duplicated.

    Example:
        import electra_tf

        vocabulary = electra_tf.Vocabulary.read("records/vocab.txt")
        vocabulary.ids["[MASK]"]
    """

    tokens: tuple[str, ...]
    source: str = dataclasses.field(default="vocabulary", compare=False)
    content: str | None = dataclasses.field(default=None, compare=False, repr=False)
    pad_id: int = dataclasses.field(default=0, compare=False)
    """Id that [PAD] has in the file, if `read` exchanged it with the first entry."""

    def __post_init__(self):
        if not all(isinstance(token, str) for token in self.tokens):
            raise InputError(
                "Each entry of a vocabulary must be text",
                f"{self.source} with an entry of another type",
                "Pass a list of strings, or Vocabulary.read(PATH)",
            )
        if len(self.tokens) > _MAX_TOKENS:
            raise InputError(
                f"A vocabulary must have at most {_MAX_TOKENS:,} entries",
                f"{self.source} with {len(self.tokens):,}",
                "Check that it is the right file",
            )
        self._reject_other_kinds()
        missing = [token for token in SPECIAL_TOKENS if token not in self.ids]
        if missing:
            raise InputError(
                f"A vocabulary must contain {' '.join(SPECIAL_TOKENS)}, one per line",
                f"{self.source} with {len(self.tokens)} lines and without "
                + " ".join(missing),
                f"For a new model, add them ({PAD} as the first line), or train a "
                "vocabulary with electra-tf build_vocab. For a trained model, use the "
                "vocabulary that it was trained with",
            )
        self.check_pad_id(self.ids[PAD])
        if len(self.ids) != len(self.tokens):
            counts = collections.Counter(self.tokens)
            token = next(token for token in self.tokens if counts[token] > 1)
            first = self.tokens.index(token)
            second = self.tokens.index(token, first + 1)
            raise InputError(
                "Each entry of a vocabulary must be unique",
                f"{self.source} with {token!r} on lines {first + 1} and {second + 1}",
                f"Write {_unused(self.ids)} on the second line, which keeps the ids; "
                "for a new model, it can be removed",
            )

    def _reject_other_kinds(self) -> None:
        for mark, kind in _OTHER_KINDS.items():
            count = sum(token.startswith(mark) for token in self.tokens)
            if count > len(self.tokens) / 20:
                raise _other_kind(
                    self.source,
                    f"{kind}: {count:,} of {len(self.tokens):,} entries begin with "
                    f"{mark!r}",
                )

    def check_pad_id(self, pad_id: int) -> None:
        """Raise an InputError if [PAD] has another id in the file than 0."""
        if pad_id:
            raise InputError(
                f"{PAD} must be the first entry, because padding is written as id 0",
                f"{self.source} with {PAD} on line {pad_id + 1}",
                "For a trained model, run `electra-tf convert --from=MODEL "
                "--to=FOLDER`, which reorders vocabulary and weights, and use the "
                f"vocab.txt that it writes. For a new model, move {PAD} to the first "
                "line",
            )

    @classmethod
    def read(cls, path: str | pathlib.Path, pad_anywhere: bool = False) -> "Vocabulary":
        """Read a vocabulary file; the line number, from 0, is the id.

        Args:
            path: A UTF-8 text file with one entry per line, as BERT, ELECTRA and
                Hugging Face write it.
            pad_anywhere: Exchange [PAD] with the first entry. Only for a vocabulary
                with weights, whose rows must be exchanged too.

        Returns:
            The validated vocabulary.

        Raises:
            InputError: The file cannot be read or is not a vocabulary.
        """
        rule = "A vocabulary must be a readable UTF-8 file with one entry per line"
        try:
            content = read_small_file(path, _MAX_BYTES)
            check_format(path, content[:HEAD_BYTES], is_decompressed=False)
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            if b"<unk>" in content and "\u2581".encode() in content:
                raise _other_kind(path, "SentencePiece, a file of its model") from error
            raise InputError(rule, f"{path}: {error}", encoding_remedy(path)) from error
        except OSError as error:
            raise InputError(
                rule,
                str(error),
                "Check the path, or train a vocabulary with electra-tf build_vocab",
            ) from error
        if text.lstrip().startswith("{"):
            raise InputError(
                rule,
                f"{path}, a JSON object",
                "Call electra_tf.Tokenizer.read, which reads a tokenizer.json and its "
                "settings, or pass the path to --vocab",
            )
        pad_id = _pad_id(text) if pad_anywhere else 0
        vocabulary = cls.parse(exchange_first(text, pad_id), str(path))
        return dataclasses.replace(vocabulary, pad_id=pad_id)

    @classmethod
    def pad_first(cls, tokens: Sequence[str], source: str) -> "Vocabulary":
        """Return the vocabulary of entries with [PAD] and the first one exchanged."""
        pad_id = tokens.index(PAD) if PAD in tokens else 0
        entries = list(tokens)
        entries[0], entries[pad_id] = entries[pad_id], entries[0]
        return cls(tuple(entries), source, pad_id=pad_id)

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
                    "Each line of a vocabulary must contain an entry",
                    f"{source} with line {number} blank",
                    f"Write {_unused(lines)} there, which keeps the ids; for a new "
                    "model, the line can be removed",
                )
        tokens = tuple(line.strip() or line.strip(_BLANKS) for line in lines)
        return cls(tokens, source, text)

    @property
    def file_tokens(self) -> tuple[str, ...]:
        """Entries in the order of the file."""
        tokens, pad_id = list(self.tokens), self.pad_id
        tokens[0], tokens[pad_id] = tokens[pad_id], tokens[0]
        return tuple(tokens)

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


def _other_kind(path: str | pathlib.Path, received: str) -> InputError:
    return InputError(
        f"{path} must be a vocabulary of BERT's WordPiece, in which {CONTINUATION} "
        "continues a word",
        received,
        OTHER_TOKENIZER,
    )


def _unused(entries: Container[str]) -> str:
    """Return a name of an unused entry that a vocabulary does not have."""
    names = (f"[unused{number}]" for number in itertools.count(1))
    return next(name for name in names if name not in entries)


def exchange_first(text: str, number: int) -> str:
    """Return the content of a vocabulary file with two lines exchanged."""
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    lines = text.removeprefix(mark).split("\n")
    lines[0], lines[number] = lines[number], lines[0]
    return mark + "\n".join(lines)


def _pad_id(text: str) -> int:
    lines = text.removeprefix(_BYTE_ORDER_MARK).split("\n")
    return next((i for i, line in enumerate(lines) if line.strip() == PAD), 0)
