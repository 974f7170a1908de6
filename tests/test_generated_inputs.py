"""Generated files of strangers give an answer or an InputError, within limits."""

import collections
import contextlib
import dataclasses
import hashlib
import json
import pathlib
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import hypothesis
import pytest
from conftest import GOLDEN, ROOT
from hypothesis import strategies as st
from mutations import json_like, mutated_bytes, mutated_text, noise, safetensors
from process_memory import PeakMemory, mapped

from electra_tf import sources
from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.tasks.tokenizer import Tokenizer

pytestmark = pytest.mark.tools
SAVED, INTEROP = GOLDEN / "saved", GOLDEN / "interop"
RECORDS, STEP = SAVED / "records", SAVED / "run" / "checkpoints" / "step_00000004"

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
    """Return a strategy of one file: a row of (name, content, argument), changed."""

    def cases(row: tuple) -> st.SearchStrategy[Case]:
        name, base, argument = row
        contents = mutated_text(base) | noise()
        return contents.map(lambda data: Case({name: data}, argument=argument))

    return st.sampled_from(rows).flatmap(cases)


# --- Settings ---------------------------------------------------------------------

_CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))


def _root(name: str) -> Any:
    return FinetuningConfig if name.startswith("finetune") else PretrainingConfig


def _read_config(folder: pathlib.Path, case: Case) -> None:
    root = _root(case.argument)
    config = loader.load_config(case.path(folder), root=root)
    assert config == loader.parse_config(loader.dump_config(config), "its dump", root)


def _read_vocabulary(folder: pathlib.Path, case: Case) -> None:
    tokenizer = Tokenizer.read(folder / "vocab.txt")
    vocabulary = tokenizer.vocabulary
    assert type(vocabulary).parse(vocabulary.text).tokens == vocabulary.tokens
    ids = tokenizer.encode("The cat sat.\nEin Satz über 中文 \U0001f600")
    assert all(0 <= i < len(vocabulary) for i in ids)


# --- Models ----------------------------------------------------------------------

_CHECKED = ("config.yaml", "vocab.txt", "vocab.txt.settings.json")


@st.composite
def _checkpoint_cases(draw) -> Case:
    """Change a file of a checkpoint; its checksum mostly agrees."""
    name = draw(st.sampled_from((*_CHECKED, "weights.safetensors", "checkpoint.json")))
    base = (STEP / name).read_bytes()
    if name == "checkpoint.json":
        return Case({name: draw(json_like(base))}, STEP)
    if name == "weights.safetensors":
        content = draw(mutated_bytes(base) | safetensors(base))
    else:
        content = draw(json_like(base) if name.endswith("json") else mutated_text(base))
    manifest = json.loads((STEP / "checkpoint.json").read_bytes())
    if draw(st.integers(0, 9)):
        digest = hashlib.sha256(content).hexdigest()
        manifest["files"][name] = [len(content), digest]
    files = {name: content, "checkpoint.json": json.dumps(manifest).encode()}
    return Case(files, STEP)


_HF, _HUB = INTEROP / "huggingface_discriminator", INTEROP / "keras_hub"
_GARDEN, _PREFIX = INTEROP / "model_garden", "encoder.ckpt-1"
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
        _changed_model(_HUB, "config.json", json_like),
        _changed_model(_HUB, "tokenizer.json", json_like),
        _changed_model(_HUB, "metadata.json", json_like),
        _changed_model(_HUB, "model.weights.h5", mutated_bytes),
        _changed_model(_GARDEN, f"{_PREFIX}.index", mutated_bytes, _PREFIX),
        _changed_model(
            _GARDEN, f"{_PREFIX}.data-00000-of-00001", mutated_bytes, _PREFIX
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
    "config": Kind(
        changed_file(*(("config.yaml", p.read_bytes(), p.name) for p in _CONFIGS)),
        _read_config,
    ),
    "vocabulary": Kind(
        changed_file(("vocab.txt", (RECORDS / "vocab.txt").read_bytes(), ""))
        | _changed_model(RECORDS, "vocab.txt.settings.json", json_like),
        _read_vocabulary,
    ),
    "checkpoint": Kind(_checkpoint_cases(), _read_model),
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
