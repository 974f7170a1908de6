"""Changed vocabularies, corpora and Hugging Face folders: an answer or InputError."""

import collections
import contextlib
import copy
import functools
import gzip
import json
import lzma
import pathlib
import re
import resource
import signal
import struct
import tempfile

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
from tests.process_memory import PeakMemory, mapped

pytestmark = pytest.mark.tools

SETTINGS = hypothesis.settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


class TooSlow(BaseException):
    """Raised by the timer; no handler of the package catches it."""


@contextlib.contextmanager
def limits(seconds=20.0, size=1 << 30):
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


# --- Changes of real files that keep most of them -------------------------------------

VALUES = (
    None, True, False, 0, -1, 1, 3, 1.5, 1e308, -0.0, 2**31, 2**63, 2**70, 10**400,
    "", " ", "\0", "x" * 5000, "../../etc/passwd", "/dev/zero", "a.b", "${HOME}",
    "\ud800", "1", "true", [], {}, [[]], [None], {"": None}, {"class_name": "Lambda"},
)  # fmt: skip
WORDS = (
    "", "0", "-1", "1e999", "-1e-999", ".nan", "NaN", "Infinity", "9" * 40, "9" * 5000,
    "null", "~", "true", "!!python/object:os.system x", "&a [*a]", "*a", "<<: *a",
    "{", "}", "[", "]", "[" * 5000, '{"a":' * 5000, ":", "\t", "\r", "\n", "\n\n", "\0",
    "\x85", "\u2028", "\ufeff", "'", '"', '"' * 3, ",", "%", "`", "|", "- ", "---\n",
    "#", "[MASK]", "x" * 3000, "é" * 3000, "😀", "\ud800", "a,b\n", '"a\n', "\t\t\t",
)  # fmt: skip
MARKS = (
    b"\xef\xbb\xbf", b"\xff\xfe", b"PK\3\4", b"PAR1", b"\x1f\x8b\x08", b"\xfd7zXZ\0",
    b"\x89HDF\r\n\x1a\n", b"\xc3", b"\xed\xa0\x80", b"\0" * 50, b"\x80\x04\x95",
)  # fmt: skip
TOKEN = re.compile(rb"[A-Za-z_.]+|[-+0-9.e]+|\s+|.", re.DOTALL)


def encode(text):
    return text.encode("utf-8", "surrogatepass")


def noise():
    """Return a strategy of text of all planes, marks of formats, and any bytes."""
    words = st.text(max_size=60).map(encode) | st.sampled_from(WORDS).map(encode)
    parts = words | st.sampled_from(MARKS) | st.binary(max_size=60)
    ends = st.sampled_from((b"", b"\n", b"\r\n", b"\t"))
    return st.builds(bytes.join, ends, st.lists(parts, max_size=12))


@st.composite
def edited(draw, base, is_text):
    """Replace, move or drop a few tokens of a text, or bytes."""
    parts = TOKEN.findall(base) if is_text else [bytes([byte]) for byte in base]
    for _ in range(draw(st.integers(0, 3))):
        end, edge = len(parts), min(len(parts), 600)
        # Headers, at both ends, matter more than the middle.
        places = st.integers(0, edge) | st.integers(end - edge, end)
        place, width = draw(places | st.integers(0, end)), draw(st.integers(1, 40))
        words = st.sampled_from(WORDS).map(encode) | noise()
        new = draw(words if is_text else NEW_BYTES)
        changes = {
            "replace": (1 if is_text else len(new), [new]),
            "insert": (0, [new]),
            "drop": (width, []),
            "copy": (0, parts[place : place + width]),
            "cut": (end if width < 10 else 0, []),  # often the same error
        }
        length, inserted = changes[draw(st.sampled_from(sorted(changes)))]
        parts[place : place + length] = inserted
    return b"".join(parts)


NEW_BYTES = st.binary(min_size=1, max_size=20) | st.sampled_from(
    (0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
).map(functools.partial(struct.pack, "<Q"))
in_text = functools.partial(edited, is_text=True)
in_bytes = functools.partial(edited, is_text=False)


@st.composite
def in_tree(draw, base):
    """Replace, drop, repeat or add values of a JSON document."""
    tree = json.loads(base)
    for _ in range(draw(st.integers(0, 2))):
        # A copy: a later change of the tree must not change the list of values.
        value = copy.deepcopy(draw(st.sampled_from(VALUES)))
        if not (holders := list(holders_of(tree))):
            tree = value
            continue
        holder = draw(st.sampled_from(holders))
        is_dict = isinstance(holder, dict)
        key = draw(st.sampled_from(list(holder) if is_dict else range(len(holder))))
        kind = draw(st.sampled_from(("replace", "replace", "drop", "add")))
        if kind == "replace":
            holder[key] = value
        elif kind == "drop":
            del holder[key]
        elif is_dict:
            holder[f"{key}2"] = value
        else:
            holder.extend(copy.deepcopy(holder[:1]) * draw(st.integers(1, 3)))
    return encode(json.dumps(tree, ensure_ascii=draw(st.booleans())))


def holders_of(tree):
    """Yield the lists and dictionaries of a tree that are not empty."""
    if isinstance(tree, dict | list) and tree:
        yield tree
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from holders_of(value)


def in_json(base):
    return in_tree(base) | in_text(base) | noise()


@st.composite
def in_header(draw, base):
    """Change the header of a safetensors file, and give its right length."""
    size = int.from_bytes(base[:8], "little")
    header = draw(in_json(base[8 : 8 + size]))
    return len(header).to_bytes(8, "little") + header + base[8 + size :]


# --- Folders, and what reads them -----------------------------------------------------


def changed(files, name, change):
    """Return a strategy of the files of a folder of which one is changed."""
    return change(files[name]).map(lambda content: {**files, name: content})


VOCABULARY = {
    name: (GOLDEN / "saved" / "records" / name).read_bytes()
    for name in ("vocab.txt", "vocab.txt.settings.json")
}
PROSE = (
    b"The cat sat on the mat .\nIt was warm .\n\n"
    + "Ein Satz über 中文 \U0001f600 .\n".encode()
) * 3
JSONL = b'{"text": "The cat sat .\\nIt was warm ."}\n{"text": "A dog", "n": 1}\n' * 2
CSV = b'text,label\n"The cat, sat","a"\nA dog,b\n"two\nlines",a\n' + b"x y,b\n" * 5
TSV = b'text\tlabel\n"The ""cat"" sat"\ta\nA dog\tb\n' + b"x y\tb\n" * 5
LIST = json.dumps([{"text": "The cat"}, {"text": "A dog", "n": 1}], indent=1).encode()
CORPORA = {
    "a.txt": PROSE, "a.txt.gz": PROSE, "a.txt.xz": PROSE, "a": PROSE, "a.jsonl": JSONL,
    "a.csv": CSV, "a.tsv.gz": TSV, "a.json": LIST, "a.json.xz": LIST,
}  # fmt: skip
PACK = {".gz": lambda content: gzip.compress(content, mtime=0), ".xz": lzma.compress}


@st.composite
def corpora(draw):
    """Change a file before it is compressed; sometimes its end is then missing."""
    name = draw(st.sampled_from(sorted(CORPORA)))
    change = in_json if ".json" in name else in_text
    content = draw(change(CORPORA[name]) | noise())
    if pack := PACK.get(pathlib.PurePath(name).suffix):
        content = pack(content)
        if not draw(st.integers(0, 15)):
            content = content[: len(content) // 2]
    return {name: content}


HF = GOLDEN / "interop" / "huggingface_discriminator"
MODEL = {
    name: (HF / name).read_bytes()
    for name in ("config.json", "model.safetensors", "vocab.txt")
}


def fast_tokenizer():
    """Return a folder with a tokenizer.json in place of vocab.txt."""
    entries = MODEL["vocab.txt"].decode().split("\n")[:-1]
    ids = {entry: number for number, entry in enumerate(entries)}
    parts = {
        "model": {"type": "WordPiece", "vocab": ids},
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
    files = {name: content for name, content in MODEL.items() if name != "vocab.txt"}
    return {**files, "tokenizer.json": json.dumps(parts).encode()}


def read_vocabulary(folder):
    tokenizer = Tokenizer.read(folder / "vocab.txt")
    vocabulary = tokenizer.vocabulary
    assert type(vocabulary).parse(vocabulary.text).tokens == vocabulary.tokens
    assert all(0 <= i < len(vocabulary) for i in tokenizer.encode(PROSE))


def read_corpus(folder):
    """Read with both values of --on_error; `report` may accept what `stop` refuses."""
    (path,) = map(str, folder.iterdir())
    for policy in ("report", "stop"):
        log = DataErrorLog(policy, folder / "problems.txt")
        with contextlib.closing(log):
            for documents in ("blank_line", "line", "file"):
                settings = CorpusConfig(documents=documents)
                for document in CorpusReader([path], settings, log):
                    assert document.lines
                    assert all(line == line.strip() != "" for line in document.lines)


def read_model(folder):
    assert sources.open_source(folder).pretrained.networks


KINDS = {  # folders, and a function that reads one and checks the answer
    "vocabulary": (
        changed(VOCABULARY, "vocab.txt", in_text)
        | changed(VOCABULARY, "vocab.txt.settings.json", in_json),
        read_vocabulary,
    ),
    "corpus": (corpora(), read_corpus),
    "Hugging Face": (
        changed(MODEL, "config.json", in_json)
        | changed(MODEL, "model.safetensors", in_bytes)
        | changed(MODEL, "model.safetensors", in_header)
        | changed(fast_tokenizer(), "tokenizer.json", in_json),
        read_model,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_generated_files(name):
    (cases, read), outcomes = KINDS[name], collections.Counter()

    @SETTINGS
    @hypothesis.given(cases)
    def check(files):
        with tempfile.TemporaryDirectory() as folder:
            for file, content in files.items():
                pathlib.Path(folder, file).write_bytes(content)
            try:
                with limits():
                    read(pathlib.Path(folder))
                outcomes["answer"] += 1
            except InputError as error:
                outcomes["error" if str(error).strip() else "no words"] += 1

    check()
    assert set(outcomes) == {"answer", "error"}
    assert min(outcomes.values()) > 2
