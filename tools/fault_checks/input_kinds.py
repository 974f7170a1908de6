"""Kinds of generated inputs: how each is made, and the function that reads it."""

import copy
import dataclasses
import functools
import gzip
import hashlib
import importlib
import io
import json
import lzma
import pathlib
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import mutations
from absl import flags
from hypothesis import strategies as st
from mutations import json_like, mutated_bytes, mutated_text, noise

ROOT = pathlib.Path(__file__).parents[2]
SAVED = ROOT / "tests" / "golden" / "saved"
INTEROP = ROOT / "tests" / "golden" / "interop"
RUN = SAVED / "run"
STEP = RUN / "checkpoints" / "step_00000004"
FLAG_ERRORS = (flags.Error,)


@dataclasses.dataclass(frozen=True)
class Case:
    """Files of one input, and arguments beside them."""

    files: Mapping[str, bytes]
    """Content by path relative to the folder of the input."""
    base: str | None = None
    """Folder whose other files are linked beside `files`."""
    arguments: tuple[str, ...] = ()

    def write(self, folder: pathlib.Path) -> None:
        """Write the files into a folder."""
        for source in pathlib.Path(self.base).rglob("*") if self.base else ():
            target = folder / source.relative_to(self.base)
            if source.is_file() and str(target.relative_to(folder)) not in self.files:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source)
        for name, content in self.files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    @property
    def name(self) -> str:
        """Path of the first file."""
        return next(iter(self.files))


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of input."""

    weight: int
    """Share of the inputs, relative to the other kinds."""
    cases: st.SearchStrategy[Case]
    read: Callable[[pathlib.Path, Case], Any]
    """Reads a case from its folder, and checks the answer."""


def one_file(
    names: str | tuple[str, ...], content: st.SearchStrategy[bytes]
) -> st.SearchStrategy[Case]:
    """Return a strategy of cases of one file; it is compressed as its name requires."""
    names = (names,) if isinstance(names, str) else names
    return st.builds(_one_file, st.sampled_from(names), content, st.integers(0, 15))


def _one_file(name: str, content: bytes, damage: int) -> Case:
    pack = {".gz": functools.partial(gzip.compress, mtime=0), ".xz": lzma.compress}
    packed = pack.get(pathlib.PurePath(name).suffix, bytes)(content)
    if packed is not content and damage == 0:  # a copy that ended early
        packed = packed[: len(packed) // 2]
    return Case({name: packed})


def below(
    base: pathlib.Path, name: str, content: st.SearchStrategy[bytes]
) -> st.SearchStrategy[Case]:
    """Return a strategy of folders with one file changed."""
    return content.map(lambda data: Case({name: data}, str(base)))


def _log(on_error: str, folder: pathlib.Path) -> Any:
    from electra_tf.text.data_errors import DataErrorLog

    return DataErrorLog(on_error, folder / "problems.txt")


def _each_policy(read: Callable[[Any], Any], folder: pathlib.Path) -> None:
    """Read with both values of --on_error; `report` may accept what `stop` refuses."""
    log = _log("report", folder)
    try:
        read(log)
    finally:
        log.close()
    read(_log("stop", folder))


def _require(holds: Any) -> None:
    """Raise an error for a wrong answer."""
    if not holds:
        raise AssertionError("a wrong answer")


# --- Settings ---------------------------------------------------------------------

_CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
_PRETRAINING = [path for path in _CONFIGS if not path.name.startswith("finetune")]
_FINETUNING = [path for path in _CONFIGS if path.name.startswith("finetune")]


def _config_cases(paths: list[pathlib.Path]) -> st.SearchStrategy[Case]:
    texts = st.sampled_from([*(p.read_bytes() for p in paths), _full(paths)])
    return one_file("config.yaml", texts.flatmap(mutated_text) | noise())


def _full(paths: list[pathlib.Path]) -> bytes:
    from electra_tf.config import loader

    root = _root(paths is _FINETUNING)
    return loader.dump_config(loader.load_config(str(paths[0]), root=root)).encode()


def _root(finetuning: bool) -> Any:
    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.pretraining import PretrainingConfig

    return FinetuningConfig if finetuning else PretrainingConfig


def _read_config(finetuning: bool, folder: pathlib.Path, case: Case) -> None:
    from electra_tf.config import loader

    root = _root(finetuning)
    config = loader.load_config(str(folder / case.name), root=root)
    again = loader.parse_config(loader.dump_config(config), "its dump", root)
    _require(config == again)


@st.composite
def _set_cases(draw) -> Case:
    from electra_tf.config.pretraining import PretrainingConfig

    names = [
        f"{section}.{name}"
        for section, field in PretrainingConfig.__dataclass_fields__.items()
        for name in field.type.__dataclass_fields__
    ]
    words = st.sampled_from(names) | noise().map(_text)
    values = st.sampled_from(
        ("1", "0", "-1", "1e9", "0.5", "true", "null", "[]", "{a: 1}", "x", "nan",
         "1e400", "9" * 5000, "[" * 3000, "2026-01-01", "electra", "[0.5, 1]")
    ) | noise().map(_text)  # fmt: skip
    pairs = draw(st.lists(st.tuples(words, values), min_size=1, max_size=4))
    equals = draw(st.sampled_from(("=", "=", "=", "", " = ", "==")))
    return Case({}, arguments=tuple(f"{n}{equals}{v}" for n, v in pairs))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _read_sets(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.config import loader

    loader.given_names("tiny", case.arguments)
    config = loader.load_config("tiny", case.arguments)
    _require(config == loader.parse_config(loader.dump_config(config), "its dump"))


COMMANDS = (
    "build_vocab", "build_records", "pretrain", "evaluate", "finetune", "predict",
    "score", "export", "convert",
)  # fmt: skip


@functools.cache
def _flags_of(command: str) -> Any:
    return importlib.import_module(f"electra_tf.{command}")


def _flag_cases() -> st.SearchStrategy[Case]:
    return st.one_of(
        _flags_cases_of(name, sorted(_flags_of(name).FLAGS)) for name in COMMANDS
    )


@st.composite
def _flags_cases_of(draw, command: str, names: list[str]) -> Case:
    values = noise().map(_text) | st.sampled_from(
        ("", "0", "-1", "1", "9" * 400, "1e3", "nan", "true", "tiny", "/", "csv", ",")
    )
    arguments = []
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=5)):
        arguments.append(f"--{name}={draw(values)}" if draw(st.booleans()) else name)
    if draw(st.integers(0, 5)) == 0:
        arguments.append(draw(noise().map(_text)))
    return Case({}, arguments=(command, *arguments))


def _read_flags(folder: pathlib.Path, case: Case) -> None:
    from electra_tf import cli
    from electra_tf.config.finetuning import FinetuningConfig

    command, *arguments = case.arguments
    module = _flags_of(command)
    values = copy.deepcopy(module.FLAGS)
    values([command, *arguments])
    if "config" in values:
        root = {"root": FinetuningConfig} if command == "finetune" else {}
        cli.resolve(values, getattr(module, "SETTINGS", {}), **root)


# --- Text -------------------------------------------------------------------------

_WORDS = (SAVED / "records" / "vocab.txt").read_bytes()
_PROSE = (
    b"The cat sat on the mat .\nIt was warm .\n\n"
    + "Ein Satz \u00fcber \u4e2d\u6587 \U0001f600 .\n".encode()
) * 3


def _read_vocabulary(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.tokenizer_files import open_tokenizer
    from electra_tf.text.vocab import Vocabulary

    path = folder / "vocab.txt"
    vocabulary = Vocabulary.read(path)
    _require(Vocabulary.parse(vocabulary.text).tokens == vocabulary.tokens)
    stored = open_tokenizer(path)
    from electra_tf.config import loader

    settings = loader.load_config(base=stored.base).tokenization
    stored.check(settings)
    tokenizer = Tokenizer(vocabulary, settings)
    ids = tokenizer.encode(_PROSE)
    _require(all(0 <= i < len(vocabulary) for i in ids))


_TEXTS = ("a.txt", "a.txt.gz", "a.txt.xz", "a", "b.TXT.GZ")
_JSONL = b'{"text": "The cat sat .\\nIt was warm ."}\n{"text": "A dog", "n": 1}\n' * 2


def _read_corpus(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.config.pretraining import CorpusConfig
    from electra_tf.text.corpus import CorpusReader

    def read(log):
        for documents in ("blank_line", "line", "file"):
            settings = CorpusConfig(documents=documents)
            for document in CorpusReader([str(folder / case.name)], settings, log):
                _require(document.lines)
                _require(all(line == line.strip() != "" for line in document.lines))

    _each_policy(read, folder)


@functools.cache
def _parquet() -> bytes:
    import pyarrow.parquet

    table = pyarrow.table({"text": ["The cat sat .", "A dog ."] * 30, "n": [1, 2] * 30})
    pyarrow.parquet.write_table(table, buffer := io.BytesIO())
    return buffer.getvalue()


# --- Task data --------------------------------------------------------------------

_CSV = b'text,label\n"The cat, sat","a"\nA dog,b\n"two\nlines",a\n' + b"x y,b\n" * 5
_TSV = b"text\tlabel\nThe cat sat\ta\nA dog\tb\n" + b"x y\tb\n" * 5
_ROWS = b'{"text": "The cat", "label": 1}\n{"text": "A dog", "label": 2.0}\n' * 3
_LIST = json.dumps(list(map(json.loads, _ROWS.splitlines())), indent=1).encode()
_QUOTED = b'text\tlabel\n"The ""cat"" sat"\ta\n"A\tdog"\tb\n' + b'"x y"\tb\n' * 5
_TAGS = b'{"tokens": ["EU", "of", "."], "ner_tags": ["B-X", "O", "O"]}\n' * 4
_COLA = b"gj04\t1\t\tThe cat sat .\ngj04\t0\t*\tSat cat the .\n" * 3
_CONLL = b"EU NNP B-NP\nof VBZ O\n. . O\n\nPeter NNP B-NP\nB. NNP I-NP\n\n" * 3


def _article(title: str, number: int) -> dict[str, Any]:
    answer = {"text": "The cat", "answer_start": 0}
    asked = {"id": f"{number}", "question": "Who sat ?", "answers": [answer]}
    empty = {"id": f"{number + 1}", "question": "Who ran ?", "answers": []}
    qas = [{**asked, "is_impossible": False}, {**empty, "is_impossible": True}]
    return {
        "title": title,
        "paragraphs": [{"context": "The cat sat on the mat .", "qas": qas}],
    }


def _flat(number: int) -> bytes:
    count = number % 3
    record = {"id": number, "title": f"T{number % 2}", "question": "Who sat ?"}
    record |= {"context": "The cat sat on the mat ."}
    answers = {"text": ["The cat"] * count, "answer_start": [0] * count}
    return json.dumps({**record, "answers": answers}).encode() + b"\n"


_FLAT = b"".join(map(_flat, range(6)))
_SQUAD = json.dumps(
    {"version": "v2.0", "data": [_article("Cats", 1), _article("Dogs", 3)]}
).encode()


def _tables() -> st.SearchStrategy[Case]:
    named = {(".csv", ".csv.gz"): _CSV, (".tsv", ".tsv.xz"): _TSV}
    named[(".tsv",)] = _QUOTED
    named[(".jsonl", ".ndjson", ".jsonl.gz")] = _ROWS
    named[(".json", ".jsonl")] = _LIST
    return st.one_of(
        one_file(tuple(f"train{end}" for end in ends), mutated_text(base) | noise())
        for ends, base in named.items()
    )


def _read_task(
    name: str, folder: pathlib.Path, case: Case, path: str | None = None
) -> None:
    from electra_tf.config import loader
    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.tasks.datasets import read_task

    sets = {"csv": ["data.text_columns=[text]", "data.label_column=label"]}
    settings = loader.load_config(None, sets.get(name, []), root=FinetuningConfig)
    data = str(folder / (path or case.name))
    _each_policy(lambda log: read_task(name, data, settings.data, log), folder)


def _glue_cases() -> st.SearchStrategy[Case]:
    content = mutated_text(_COLA) | noise()
    return st.tuples(content, content).map(
        lambda pair: Case({"train.tsv": pair[0], "dev.tsv": pair[1]})
    )


_GLUE = b"index\tprediction\n0\t1\n1\t0\n2\t1\n3\t0\n4\t1\n5\t0\n"
_LABELS = {
    "cola": ("dev.tsv", _COLA, _GLUE),
    "chunking": ("dev.txt", _CONLL, re.sub(rb" [A-Z.]+ ", b" ", _CONLL)),
    "squad2": ("dev.json", _SQUAD, b'{"1": "The cat", "2": "", "3": "cat", "4": ""}'),
}  # fmt: skip


@st.composite
def _prediction_cases(draw) -> Case:
    task = draw(st.sampled_from(sorted(_LABELS)))
    name, labels, predictions = _LABELS[task]
    content = json_like if task == "squad2" else mutated_text
    files = {"predictions.txt": draw(content(predictions) | noise()), name: labels}
    if draw(st.booleans()):
        files[name] = draw(content(labels))
    if task == "squad2" and draw(st.booleans()):
        odds = b'{"1": 0.1, "2": 0.9, "3": -1, "4": 2}'
        files["odds.json"] = draw(json_like(odds))
    return Case(files, arguments=(task, name))


def _read_predictions(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.tasks import score

    task, labels = case.arguments
    odds = folder / "odds.json"
    scores = score.score_predictions(
        task,
        str(folder / labels),
        str(folder / case.name),
        str(odds) if odds.exists() else None,
        log=lambda line: None,
    )
    json.dumps(scores)


_NBEST = b"u1\tthe cat\t-1.5\nu1\ta cat\t-2\nu2\tthe dog\t0\n"


class _ConstantScorer:
    """Scorer without a model."""

    rule = "negative_energy"

    def score(self, texts, names=str):
        return [(float(len(text)), 1) for text in texts]


def _read_nbest(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.runs import nbest

    path, scorer = str(folder / case.name), _ConstantScorer()
    for form in nbest.FORMATS:
        list(nbest.score_lines(scorer, path, form))
    list(nbest.rerank(scorer, path, 1.0))


_BLIMP = (
    b'{"UID": "a", "linguistics_term": "b", "sentence_good": "The cat sat",'
    b' "sentence_bad": "The cat sit"}\n'
) * 3
_TABLE_LINES = b'text\n"The cat"\nA dog\n'
_LINES = b'The cat\n{"text": "A dog", "id": 3}\nthe end\n'
_TAGGED = b'The cat\n{"words": ["A", "dog"], "id": "x"}\n'


@functools.cache
def _model(name: str) -> Any:
    from electra_tf.tasks import inference

    return inference.load(str(SAVED / name))


@st.composite
def _input_cases(draw) -> Case:
    name, file, base = draw(
        st.sampled_from(
            [
                ("classifier", "in.txt", _LINES),
                ("classifier", "in.csv", _TABLE_LINES),
                ("classifier", "in.jsonl.gz", _LINES.splitlines(True)[1] * 2),
                ("classifier", "in.json", _LIST),
                ("tagger", "in.txt", _TAGGED),
                ("tagger", "in.conll.gz", _CONLL),
                ("tagger", "in.txt", b"-DOCSTART- -X- O\n\n" + _CONLL),
                ("answerer", "in.json", _FLAT),
                ("answerer", "in.json", _SQUAD),
                ("answerer", "in.jsonl", b'{"question": "Who ?", "context": "A"}\n'),
            ]
        )
    )
    case = _one_file(file, draw(mutated_text(base) | noise()), draw(st.integers(0, 15)))
    return dataclasses.replace(case, arguments=(name,))


def _read_inputs(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.tasks.prediction_inputs import read_items

    model = _model(*case.arguments)
    items = list(read_items(model, str(folder / case.name)))
    model.examples([item.value for item in items])


def _read_blimp(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.runs import blimp

    pairs = blimp.read_pairs(str(folder / case.name))
    _require(all(isinstance(pair["sentence_good"], str) for pair in pairs))


def _read_metrics(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.training.metric_logger import read_metrics

    _require(all(isinstance(line["step"], int) for line in read_metrics(str(folder))))


# --- Records ----------------------------------------------------------------------

_RECORDS = SAVED / "records"
_SHARD = "pretrain_data.tfrecord-00000-of-00002"


@st.composite
def _record_cases(draw) -> Case:
    content = (_RECORDS / _SHARD).read_bytes()
    if draw(st.booleans()):
        content = draw(mutated_bytes(content))
    else:  # valid frames with other payloads
        payload = content[12 : 12 + int.from_bytes(content[:8], "little")]
        payloads = [draw(mutated_bytes(payload) | noise()) for _ in range(3)]
        content = b"".join(map(mutations.framed, payloads))
    manifest = json.loads((_RECORDS / "manifest.json").read_bytes())
    shard = manifest["shards"][0]
    shard["bytes"], shard["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    files = {_SHARD: content, "manifest.json": json.dumps(manifest).encode()}
    if draw(st.booleans()):
        return Case({_SHARD: content}, arguments=("without manifest",))
    return Case(files, str(_RECORDS))


def _read_records(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.text.record_set import (
        find_bad_record,
        open_records,
        replace_bad_records,
    )

    size = {"vocabulary_size": 1000} if case.arguments else {}
    options = {"max_length": 32, "tokenizer": None, **size}
    loose = open_records(str(folder), **options, on_error="skip")
    kept = folder / "repaired"
    repaired = replace_bad_records(loose, str(kept), lambda line: None)
    find_bad_record(repaired)  # raises for a bad record
    record_set = open_records(str(folder), **options)
    find_bad_record(record_set)


# --- Models -----------------------------------------------------------------------

_CHECKED = ("config.yaml", "vocab.txt", "vocab.txt.settings.json")


@st.composite
def _checkpoint_cases(draw) -> Case:
    """Change a file of a checkpoint; its checksum mostly agrees."""
    name = draw(st.sampled_from((*_CHECKED, "weights.safetensors", "checkpoint.json")))
    base = (STEP / name).read_bytes()
    if name == "checkpoint.json":
        return Case({name: draw(json_like(base))}, str(STEP))
    if name == "weights.safetensors":
        content = draw(mutated_bytes(base) | _safetensors(base))
    else:
        content = draw(json_like(base) if name.endswith("json") else mutated_text(base))
    manifest = json.loads((STEP / "checkpoint.json").read_bytes())
    if draw(st.integers(0, 9)):
        digest = hashlib.sha256(content).hexdigest()
        manifest["files"][name] = [len(content), digest]
    files = {name: content, "checkpoint.json": json.dumps(manifest).encode()}
    return Case(files, str(STEP))


@st.composite
def _safetensors(draw, base: bytes) -> bytes:
    """Change the header of a safetensors file, with a right length."""
    size = int.from_bytes(base[:8], "little")
    header = draw(json_like(base[8 : 8 + size]))
    return len(header).to_bytes(8, "little") + header + base[8 + size :]


def _read_checkpoint(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.interop import conversion
    from electra_tf.tasks.pretrained import PretrainedEncoder

    PretrainedEncoder.open(str(folder))
    model, _ = conversion.read_model(str(folder))
    _require(model.networks)


def _read_scorer(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.runs.scoring import TextScorer

    scorer = TextScorer.from_preset(str(folder))
    scorer.score(["the cat"])


def _read_foreign(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.interop import conversion

    path = folder / case.arguments[0] if case.arguments else folder
    model, _ = conversion.read_model(str(path))
    _require(model.networks)


def _read_torch(folder: pathlib.Path, case: Case) -> None:
    from electra_tf.interop.tensor_files import read_tensors

    _require(read_tensors(str(folder / case.name)))


_HF = INTEROP / "huggingface_discriminator"


@st.composite
def _huggingface_cases(draw) -> Case:
    name = draw(st.sampled_from(("config.json", "model.safetensors", "tokenizer")))
    if name == "config.json":
        return Case({name: draw(json_like((_HF / name).read_bytes()))}, str(_HF))
    if name == "model.safetensors":
        base = (_HF / name).read_bytes()
        content = draw(mutated_bytes(base) | _safetensors(base))
        return Case({name: content}, str(_HF))
    words = (_HF / "vocab.txt").read_text().split("\n")[:-1]
    ids = {word: number for number, word in enumerate(words)}
    parts = {
        "model": {"type": "WordPiece", "vocab": ids},
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
    fast = json.dumps(parts).encode()
    config = b'{"do_lower_case": true, "strip_accents": null, "x": 1}'
    files = {
        "tokenizer.json": draw(json_like(fast) | st.just(fast)),
        "tokenizer_config.json": draw(json_like(config)),
    }
    for linked in ("config.json", "model.safetensors"):
        files[linked] = (_HF / linked).read_bytes()
    return Case(files)


@st.composite
def _other_cases(draw) -> Case:
    hub, garden = INTEROP / "keras_hub", INTEROP / "model_garden"
    base, name, kind = draw(
        st.sampled_from(
            [
                (hub, "config.json", json_like),
                (hub, "tokenizer.json", json_like),
                (hub, "metadata.json", json_like),
                (hub, "model.weights.h5", mutated_bytes),
                (garden, "encoder.ckpt-1.index", mutated_bytes),
                (garden, "encoder.ckpt-1.data-00000-of-00001", mutated_bytes),
            ]
        )
    )
    prefix = ("encoder.ckpt-1",) if base is garden else ()
    content = draw(kind((base / name).read_bytes()))
    return Case({name: content}, str(base), prefix)


@st.composite
def _torch_cases(draw) -> Case:
    name = draw(st.sampled_from(("zip.bin", "legacy.bin")))
    content = draw(mutated_bytes((INTEROP / name).read_bytes()))
    return Case(
        {
            "pytorch_model.bin": content,
            "config.json": (_HF / "config.json").read_bytes(),
        }
    )


@st.composite
def _keras_cases(draw) -> Case:
    """Change a .keras file, or the config in it."""
    base = (SAVED / "classifier" / "model.keras").read_bytes()
    if draw(st.integers(0, 3)) == 0:
        return Case({"model.keras": draw(mutated_bytes(base))})
    changed = io.BytesIO()
    name = draw(st.sampled_from(("config.json", "config.json", "metadata.json")))
    with (
        zipfile.ZipFile(io.BytesIO(base)) as archive,
        zipfile.ZipFile(changed, "w") as target,
    ):
        for entry in archive.infolist():
            content = archive.read(entry)
            if entry.filename == name:
                content = draw(json_like(content))
            target.writestr(entry.filename, content)
    return Case({"model.keras": changed.getvalue()})


def _read_keras(folder: pathlib.Path, case: Case) -> None:
    import keras

    from electra_tf.tasks import inference, predictions
    from electra_tf.tasks.prediction_inputs import Item

    model = inference.load(str(folder / "model.keras"))
    list(predictions.predict_items(model, [Item("the cat")], log=lambda line: None))
    keras.backend.clear_session()


KINDS: dict[str, Kind] = {
    "config": Kind(10, _config_cases(_PRETRAINING),
                   functools.partial(_read_config, False)),
    "finetuning config": Kind(6, _config_cases(_FINETUNING),
                              functools.partial(_read_config, True)),
    "--set": Kind(8, _set_cases(), _read_sets),
    "flags": Kind(8, st.deferred(_flag_cases), _read_flags),
    "vocabulary": Kind(6, one_file("vocab.txt", mutated_text(_WORDS) | noise()),
                       _read_vocabulary),
    "vocabulary settings": Kind(3, below(
        _RECORDS, "vocab.txt.settings.json",
        json_like((_RECORDS / "vocab.txt.settings.json").read_bytes()),
    ), _read_vocabulary),
    "text": Kind(8, one_file(_TEXTS, mutated_text(_PROSE) | noise()), _read_corpus),
    "JSON lines": Kind(5, one_file(("a.jsonl", "a.json.gz"), mutated_text(_JSONL)),
                       _read_corpus),
    "corpus table": Kind(4, one_file(("a.csv", "a.tsv.gz", "a.tsv"),
                         mutated_text(_CSV) | mutated_text(_QUOTED)), _read_corpus),
    "corpus list": Kind(3, one_file(("a.json", "a.txt", "a.json.xz"),
                        json_like(_LIST) | mutated_text(_LIST)), _read_corpus),
    "Parquet": Kind(2, st.deferred(
        lambda: one_file("a.parquet", mutated_bytes(_parquet()))), _read_corpus),
    "table": Kind(10, _tables(), functools.partial(_read_task, "csv")),
    "GLUE": Kind(4, _glue_cases(), functools.partial(_read_task, "cola", path=".")),
    "CoNLL": Kind(6, one_file(("a.txt", "a.txt.gz"), mutated_text(_CONLL) | noise()),
                  functools.partial(_read_task, "chunking")),
    "JSON of tags": Kind(3, one_file(("a.jsonl", "a.json"), json_like(
                             _TAGS.split(b"\n")[0]) | mutated_text(_TAGS)),
                         functools.partial(_read_task, "tagging")),
    "flat SQuAD": Kind(3, one_file(("a.jsonl", "a.json.gz"), mutated_text(_FLAT)),
                       functools.partial(_read_task, "squad2")),
    "SQuAD": Kind(6, one_file(("train.json", "train.json.xz"), json_like(_SQUAD)),
                  functools.partial(_read_task, "squad2")),
    "predictions": Kind(6, _prediction_cases(), _read_predictions),
    "n-best": Kind(3, one_file(("a.txt", "a.gz"), mutated_text(_NBEST) | noise()),
                   _read_nbest),
    "BLiMP": Kind(3, one_file("a.jsonl", json_like(_BLIMP.split(b"\n")[0])
                              | mutated_text(_BLIMP)), _read_blimp),
    "input of predict": Kind(6, _input_cases(), _read_inputs),
    "metrics": Kind(2, one_file("metrics.jsonl", mutated_text(
        b'{"step": 1, "kind": "train", "loss": 1.5}\n' * 3) | noise()), _read_metrics),
    "records": Kind(5, _record_cases(), _read_records),
    "manifest": Kind(4, below(_RECORDS, "manifest.json", json_like(
        (_RECORDS / "manifest.json").read_bytes())), _read_records),
    "checkpoint": Kind(8, _checkpoint_cases(), _read_checkpoint),
    "checkpoint to score with": Kind(1, _checkpoint_cases(), _read_scorer),
    "Hugging Face folder": Kind(6, _huggingface_cases(), _read_foreign),
    "KerasHub or Model Garden": Kind(4, _other_cases(), _read_foreign),
    "pytorch_model.bin": Kind(3, _torch_cases(), _read_torch),
    ".keras": Kind(2, _keras_cases(), _read_keras),
}  # fmt: skip
"""Kinds by name."""
