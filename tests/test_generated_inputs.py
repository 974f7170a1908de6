"""Generated files of each kind give a right answer or an InputError, within limits."""

import collections
import contextlib
import dataclasses
import functools
import gzip
import json
import lzma
import pathlib
import re
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

from electra_tf import sources
from electra_tf.config.data import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.tasks.tokenizer import Tokenizer
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from tests.conftest import GOLDEN
from tests.mutations import json_like, mutated_bytes, mutated_text, noise, safetensors
from tests.process_memory import PeakMemory, mapped

pytestmark = pytest.mark.tools
SAVED, INTEROP = GOLDEN / "saved", GOLDEN / "interop"
RECORDS = SAVED / "records"

SETTINGS = hypothesis.settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """Files of one input, and an argument beside them."""

    files: Mapping[str, bytes]
    """Content by name."""
    base: pathlib.Path | None = None
    """Folder whose other files are linked beside `files`."""
    argument: str = ""

    def write(self, folder: pathlib.Path) -> None:
        for source in self.base.iterdir() if self.base else ():
            if source.is_file() and source.name not in self.files:
                (folder / source.name).symlink_to(source)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)

    def path(self, folder: pathlib.Path) -> str:
        return str(folder / next(iter(self.files)))


class Kind(NamedTuple):
    """One kind of input."""

    cases: st.SearchStrategy[Case]
    read: Callable[[pathlib.Path, Case], Any]
    """Reads a case from its folder, and checks the answer."""


class TooSlow(BaseException):
    """Raised by the timer; no handler of the package catches it."""


@contextlib.contextmanager
def limits(seconds: float = 20.0, size: int = 1 << 30) -> Iterator[None]:
    """Limit CPU time, and memory above what this process has."""

    def stop(*_):
        raise TooSlow(f"over {seconds} s")

    handler = signal.signal(signal.SIGPROF, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped() + 2 * size, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    memory = PeakMemory()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, handler)
        assert memory.taken < size


def changed_file(*rows: tuple) -> st.SearchStrategy[Case]:
    """Return a strategy of one file: a row of (name, content, argument), changed.

    The content is compressed as the name requires; sometimes the end is then missing.
    """
    packers = {".gz": functools.partial(gzip.compress, mtime=0), ".xz": lzma.compress}

    def cases(row: tuple) -> st.SearchStrategy[Case]:
        name, base, argument = row
        change = json_like if re.search(r"\.json\b", name) else mutated_text
        pack = packers.get(pathlib.PurePath(name).suffix)

        def case(content: bytes, damage: int) -> Case:
            if pack:
                content = pack(content)
                content = content if damage else content[: len(content) // 2]
            return Case({name: content}, argument=argument)

        return st.builds(case, change(base) | noise(), st.integers(0, 15))

    return st.sampled_from(rows).flatmap(cases)


def _each_policy(read: Callable[[Any], Any], folder: pathlib.Path) -> None:
    """Read with both values of --on_error; `report` may accept what `stop` refuses."""
    log = DataErrorLog("report", folder / "problems.txt")
    try:
        read(log)
    finally:
        log.close()
    read(DataErrorLog("stop", folder / "problems.txt"))


# --- Text --------------------------------------------------------------------------

_PROSE = (
    b"The cat sat on the mat .\nIt was warm .\n\n"
    + "Ein Satz über 中文 \U0001f600 .\n".encode()
) * 3
_JSONL = b'{"text": "The cat sat .\\nIt was warm ."}\n{"text": "A dog", "n": 1}\n' * 2
_CSV = b'text,label\n"The cat, sat","a"\nA dog,b\n"two\nlines",a\n' + b"x y,b\n" * 5
_TSV = b'text\tlabel\n"The ""cat"" sat"\ta\nA dog\tb\n' + b"x y\tb\n" * 5
_LIST = json.dumps([{"text": "The cat"}, {"text": "A dog", "n": 1}], indent=1).encode()


def _read_vocabulary(folder: pathlib.Path, case: Case) -> None:
    tokenizer = Tokenizer.read(folder / "vocab.txt")
    vocabulary = tokenizer.vocabulary
    assert type(vocabulary).parse(vocabulary.text).tokens == vocabulary.tokens
    ids = tokenizer.encode(_PROSE)
    assert all(0 <= i < len(vocabulary) for i in ids)


def _read_corpus(folder: pathlib.Path, case: Case) -> None:
    def read(log):
        for documents in ("blank_line", "line", "file"):
            settings = CorpusConfig(documents=documents)
            for document in CorpusReader([case.path(folder)], settings, log):
                assert document.lines
                assert all(line == line.strip() != "" for line in document.lines)

    _each_policy(read, folder)


# --- Models ----------------------------------------------------------------------

_HF = INTEROP / "huggingface_discriminator"
Change = Callable[[bytes], st.SearchStrategy[bytes]]


def _changed_model(
    base: pathlib.Path, name: str, change: Change, argument: str = ""
) -> st.SearchStrategy[Case]:
    content = change((base / name).read_bytes())
    return content.map(lambda data: Case({name: data}, base, argument))


def _with_files(name: str, content: bytes, *others: str) -> Case:
    return Case({name: content, **{n: (_HF / n).read_bytes() for n in others}})


def _fast_tokenizer() -> bytes:
    words = (_HF / "vocab.txt").read_text().split("\n")[:-1]
    ids = {word: number for number, word in enumerate(words)}
    parts = {
        "model": {"type": "WordPiece", "vocab": ids},
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
    return json.dumps(parts).encode()


def _foreign_cases() -> st.SearchStrategy[Case]:
    return st.one_of(
        _changed_model(_HF, "config.json", json_like),
        _changed_model(_HF, "model.safetensors", mutated_bytes),
        _changed_model(_HF, "model.safetensors", safetensors),
        _changed_model(INTEROP / "keras_hub", "model.weights.h5", mutated_bytes),
        _changed_model(
            *(INTEROP / "model_garden", "encoder.ckpt-1.index", mutated_bytes),
            argument="encoder.ckpt-1",
        ),
        *(
            mutated_bytes((INTEROP / name).read_bytes()).map(
                lambda data: _with_files("pytorch_model.bin", data, "config.json")
            )
            for name in ("zip.bin", "legacy.bin")
        ),
        json_like(_fast_tokenizer()).map(
            lambda data: _with_files(
                "tokenizer.json", data, "config.json", "model.safetensors"
            )
        ),
    )


def _read_model(folder: pathlib.Path, case: Case) -> None:
    path = folder / case.argument
    assert sources.open_source(path).pretrained.networks


KINDS = {
    "vocabulary": Kind(
        changed_file(("vocab.txt", (RECORDS / "vocab.txt").read_bytes(), ""))
        | _changed_model(RECORDS, "vocab.txt.settings.json", json_like),
        _read_vocabulary,
    ),
    "text": Kind(
        changed_file(
            ("a.txt", _PROSE, ""), ("a.txt.gz", _PROSE, ""), ("a.txt.xz", _PROSE, ""),
            ("a", _PROSE, ""), ("a.jsonl", _JSONL, ""), ("a.csv", _CSV, ""),
            ("a.tsv.gz", _TSV, ""), ("a.json", _LIST, ""), ("a.json.xz", _LIST, ""),
        ),
        _read_corpus,
    ),
    "model of another library": Kind(_foreign_cases(), _read_model),
}  # fmt: skip
"""Kinds by name."""


@pytest.mark.parametrize("name", KINDS)
def test_generated_files(name):
    kind, outcomes = KINDS[name], collections.Counter()

    @SETTINGS
    @hypothesis.given(kind.cases)
    def read(case):
        with tempfile.TemporaryDirectory() as folder:
            outcomes[outcome_of(kind, pathlib.Path(folder), case)] += 1

    read()
    assert set(outcomes) == {"answer", "error"}
    assert min(outcomes.values()) > 2


def outcome_of(kind: Kind, folder: pathlib.Path, case: Case) -> str:
    case.write(folder)
    try:
        with limits():
            kind.read(folder, case)
    except InputError as error:
        return "error" if str(error).strip() else "error without words"
    return "answer"
