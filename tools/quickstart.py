"""From text that lies on this machine to a small, checked ELECTRA.

    tools/quickstart [--output=quickstart_run] [--steps=1000]

Ctrl-C stops it at any time; the same command goes on from there.
"""

import argparse
import ast
import contextlib
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterable, Iterator

import quickstart_pictures as pictures

from electra_tf.errors import InputError
from electra_tf.text.records import MANIFEST
from electra_tf.text.tokenizer import settings_path
from electra_tf.training.checkpoint import CHECKPOINTS, saved_steps

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "tiny.yaml"
STEPS, MINUTES = 1000, 6
# Over configs/tiny.yaml, which is made for hours: what learns most within minutes.
TRAINING = {
    "optimizer.warmup_steps": 100,
    "optimizer.decay_power": 0.3,
    "training.log_every": 10,
    "training.save_every": 100,
    "training.evaluate_every": 100,
    "training.evaluation_batches": 10,
}
HELD_OUT_EVERY = 50  # of the source files; the others are trained on

# ---- Text: the docstrings of the Python installation, and its help topics.

_SKIPPED = {"site-packages", "dist-packages", "test", "tests"}
_LARGEST_SOURCE = 2_000_000  # bytes
_SHORTEST_DOCUMENT = 200  # characters
_TOPICS = ("pydoc_data", "topics.py")  # help() reads its text from there

_UNDERLINE = re.compile(r"[-=~^*#+]{3,}$")
_CODE = re.compile(r">>>|\.\.\.|```|\$ |@|#")
_ENTRY = re.compile(r"[-*•] |\d+[.)] |\*{0,2}[\w.]+(, [\w.]+)*( \([^)]*\))?: ")
_HEADING = re.compile(r"\w+:$|\*{0,2}\w+(, \*{0,2}\w+)* : ")  # "Args:", "x : array"
_MARKUP = re.compile(r":[a-z:]+:(?=`)|`+|\*\*?(?=\S)|(?<=\S)\*\*?(?=\W|$)")
_SENTENCE = re.compile(r"[A-Z].*[.!?:)]$")
_WORD = re.compile(r"[(\"']*[A-Za-z][a-z]*([-'/][A-Za-z]+)*[.,;:!?)\"']*$")


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a docstring that are English sentences, each on one line.

    Headings, tables, code and the names of parameters are left out; what is said of a
    parameter stays.
    """
    lines, deep = [], 0
    for line in [*text.expandtabs().splitlines(), ""]:
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        entry = _ENTRY.match(bare)
        heading = _HEADING.match(bare)
        if not bare or entry or heading or (lines and indent < deep):
            if prose := _prose(lines):
                yield prose
            lines = []
        if _UNDERLINE.match(bare):
            lines = []
        elif bare and not heading:
            lines.append(bare[entry.end() :] if entry else bare)
            deep = indent


def _prose(lines: list[str]) -> str | None:
    """The lines as one, if they are sentences."""
    if any(map(_CODE.match, lines)):
        return None
    told = " ".join(_MARKUP.sub("", " ".join(lines)).split())
    words = told.split()
    if len(words) < 6 or not _SENTENCE.match(told) or not told.isprintable():
        return None
    return told if sum(map(bool, map(_WORD.match, words))) >= 0.8 * len(words) else None


def strings(source: bytes, is_topics: bool = False) -> Iterator[str]:
    """The docstrings of a source file's module, classes and functions, in order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # written for another Python
    if is_topics:
        constants = (n for n in ast.walk(tree) if isinstance(n, ast.Constant))
        yield from (n.value for n in constants if isinstance(n.value, str))
    else:
        yield from _docstrings(tree)


def _docstrings(node: ast.AST) -> Iterator[str]:
    if found := ast.get_docstring(node):
        yield found
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for part in node.body:
            if isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _docstrings(part)


def sources(roots: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """The source files below some folders, mixed well and always in the same way."""
    found = {}
    for root in roots:
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name not in _SKIPPED]
            for name in files:
                path = pathlib.Path(folder, name)
                if name.endswith(".py"):
                    inner = path.relative_to(root).as_posix()
                    found[hashlib.sha256(inner.encode()).digest()] = path
    return [found[key] for key in sorted(found)]


def document(path: pathlib.Path) -> list[str]:
    """The prose of one source file."""
    if path.stat().st_size > _LARGEST_SOURCE:
        return []
    source = path.read_bytes()
    is_topics = path.parts[-2:] == _TOPICS
    return [p for text in strings(source, is_topics) for p in paragraphs(text)]


def gather(roots: Iterable[pathlib.Path], folder: pathlib.Path, megabytes: float):
    """Writes `train.txt`, last, and `heldout.txt`; a blank line ends a document.

    No paragraph is in both, or twice in one. Returns the numbers of documents and of
    characters.
    """
    folder.mkdir(parents=True, exist_ok=True)
    targets = [folder / "train.txt", folder / "heldout.txt"]
    partial = [path.with_suffix(".partial") for path in targets]
    seen, documents, size = set(), 0, 0
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(p.open("w", encoding="utf-8")) for p in partial]
        pool = stack.enter_context(multiprocessing.Pool(initializer=_leave_interrupts))
        for found in pool.imap(document, sources(roots), chunksize=32):
            new = [p for p in found if not (p in seen or seen.add(p))]
            if sum(map(len, new)) < _SHORTEST_DOCUMENT:
                continue
            documents, size = documents + 1, size + sum(map(len, new))
            print(*new, "", sep="\n", file=files[documents % HELD_OUT_EVERY == 0])
            if size >= megabytes * 1e6:
                break
    for source, target in reversed(list(zip(partial, targets, strict=True))):
        source.replace(target)
    return documents, size


def _leave_interrupts() -> None:
    """A worker leaves Ctrl-C to the process that ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# ---- The stages. Each says what it does, or that it was done before.


class Commands:
    """Runs the real command lines, each shown first, and passes signals on."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._signal = 0

    def run(self, name: str, *arguments: str) -> None:
        """Runs `python -m electra_tf.NAME` in this terminal; ends if it fails."""
        shown = [near(sys.executable), "-m", f"electra_tf.{name}", *arguments]
        print(f"\n$ {shlex.join(shown)}", flush=True)
        begin = time.perf_counter()
        self._child = subprocess.Popen([sys.executable, *shown[1:]])
        # Ctrl-C reaches both processes: the command saves, and this one waits for it.
        before = {s: signal.signal(s, self._note) for s in _SIGNALS}
        try:
            code = self._child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._signal:
            interrupted(128 + self._signal)
        if code:
            sys.exit(code)
        spent = time.perf_counter() - begin
        self.seconds[name] = self.seconds.get(name, 0) + spent

    def _note(self, number: int, _) -> None:
        self._signal = number
        if number == signal.SIGTERM:
            self._child.terminate()


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupted(code: int) -> None:
    """Ends this program with what to do next."""
    again = shlex.join([near(ROOT / "tools" / "quickstart"), *sys.argv[1:]])
    print(f"\nstopped; nothing is lost, go on with\n  {again}")
    sys.exit(code)


def near(path: str | os.PathLike) -> str:
    """A path as one would type it here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def claim(folder: pathlib.Path, settings: dict[str, float]) -> None:
    """Takes a new folder, or one that an earlier start with the same settings made."""
    noted = folder / "quickstart.json"
    if noted.exists():
        then = json.loads(noted.read_text())
        if then != settings:
            raise InputError(
                f"A quick start goes on as it began ({folder})",
                f"{settings}, where it began with {then}",
                "Give the same options again, or another folder with --output",
            )
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(
            "--output is a new folder or one of an earlier quick start",
            f"{folder}, which holds something else",
            "Name another one",
        )
    folder.mkdir(parents=True, exist_ok=True)
    whole(noted, json.dumps(settings))


def whole(path: pathlib.Path, text: str) -> None:
    """Writes a file that has its name only when it is complete."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def done(path: pathlib.Path, what: str) -> bool:
    """Whether a stage's last file is there; says so."""
    if path.exists():
        print(f"{what}: done before, {near(path)}")
    return path.exists()


def make_text(folder: pathlib.Path, megabytes: float) -> pathlib.Path:
    """The corpus, gathered if it is not there."""
    text = folder / "text"
    if not done(text / "train.txt", "text"):
        print("reading the docstrings of the Python installation and its packages ...")
        roots = dict.fromkeys(
            pathlib.Path(sysconfig.get_path(name))
            for name in ("stdlib", "purelib", "platlib")
        )
        documents, size = gather(roots, text, megabytes)
        print(f"{near(text)}: {size:,} characters in {documents:,} documents")
    return text


def make_records(
    commands: Commands, folder: pathlib.Path, text: pathlib.Path, size: int
) -> None:
    """The vocabulary, and the records to learn from and to measure on."""
    vocab = folder / "vocab.txt"
    if not done(settings_path(vocab), "vocabulary"):
        vocab.unlink(missing_ok=True)  # the settings are written last
        commands.run(
            "build_vocab", f"--input={near(text / 'train.txt')}",
            f"--output={near(vocab)}", f"--size={size}",
            f"--heldout={near(text / 'heldout.txt')}",
        )  # fmt: skip
    for name, source in (("records", "train.txt"), ("heldout", "heldout.txt")):
        records = folder / name
        if not done(records / MANIFEST, name):
            commands.run(
                "build_records", f"--input={near(text / source)}",
                f"--vocab={near(vocab)}", f"--output={near(records)}",
                f"--config={near(CONFIG)}",
                *(["--overwrite"] if records.exists() else []),
            )  # fmt: skip


def train(commands: Commands, folder: pathlib.Path, steps: int) -> pathlib.Path:
    """The run, from its beginning or from where it was stopped."""
    run = folder / "run"
    saved = saved_steps(str(run / CHECKPOINTS))
    if steps in saved:
        print(f"training: done before, {near(saved[steps])}")
        return pathlib.Path(saved[steps])
    settings = {"training.steps": steps, **TRAINING}
    commands.run(
        "pretrain", f"--config={near(CONFIG)}", f"--data={near(folder / 'records')}",
        f"--evaluation_data={near(folder / 'heldout')}", f"--model_dir={near(run)}",
        *(part for name, v in settings.items() for part in ("--set", f"{name}={v}")),
    )  # fmt: skip
    return pathlib.Path(saved_steps(str(run / CHECKPOINTS))[steps])


def measure(
    commands: Commands, folder: pathlib.Path, checkpoint: pathlib.Path
) -> dict[str, float]:
    """The metrics on all that is held out."""
    output = folder / "evaluation.json"
    if not done(output, "evaluation"):
        commands.run(
            "evaluate", f"--checkpoint={near(checkpoint)}",
            f"--data={near(folder / 'heldout')}", f"--output={near(output)}",
        )  # fmt: skip
    return json.loads(output.read_text())


def start(options: argparse.Namespace) -> None:
    """All stages, then what came out."""
    begin = time.perf_counter()
    folder, commands = pathlib.Path(options.output), Commands()
    settings = {k: v for k, v in vars(options).items() if k != "output"}
    claim(folder, settings)
    text = make_text(folder, options.text_megabytes)
    gathered = time.perf_counter() - begin
    make_records(commands, folder, text, options.vocabulary_size)
    checkpoint = train(commands, folder, options.steps)
    metrics = measure(commands, folder, checkpoint)
    if not done(folder / "pictures.json", "pictures"):
        print("\nletting the checkpoint replace words and judge them ...", flush=True)
        found = pictures.find(folder / "run", checkpoint, text / "heldout.txt")
        pictures.draw(found, folder)
        whole(folder / "pictures.json", json.dumps(found))
    found = json.loads((folder / "pictures.json").read_text())
    print(f"\n{pictures.told(found, sys.stdout.isatty())}\n")
    shown = ("masked_lm_loss", "masked_lm_accuracy", "disc_loss", "disc_auc")
    print(f"held-out text: {'  '.join(f'{k} {metrics[k]:.3f}' for k in shown)}")
    for name in ("curves.png", "replaced.png", "replaced.html"):
        print(f"  {near(folder / name)}")
    print(f"the checkpoint, which needs nothing beside it:\n  {near(checkpoint)}")
    paths = map(near, (sys.executable, folder, checkpoint, CONFIG.parent))
    print(f"\n{pictures.next_commands(*paths, 10 * options.steps)}\n")
    spent = {"text": gathered, **commands.seconds}
    parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in spent.items())
    print(f"{(time.perf_counter() - begin) / 60:.1f} minutes ({parts})")


def main() -> None:
    """Reads the options; errors become one paragraph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", default="quickstart_run", help="a folder; default: %(default)s"
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS,
        help=f"of training; default: %(default)s, about {MINUTES} minutes on two cores",
    )  # fmt: skip
    parser.add_argument(
        "--text_megabytes", type=float, default=10, help="default: %(default)s"
    )
    parser.add_argument(
        "--vocabulary_size", type=int, default=4096, help="default: %(default)s"
    )
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="replace", line_buffering=True)
    try:
        start(options)
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        rule, remedy = "Files can be read and written", "Check the path and the disk"
        sys.exit(f"error: {InputError(rule, str(error), remedy)}")
    except KeyboardInterrupt:
        interrupted(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
