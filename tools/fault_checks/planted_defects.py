"""Plant a defect in a copy of the repository, and run the tests that must fail.

    tools/faults planted [masking resume ...]

Each defect replaces one text of one file. It is caught if a test fails, and missed if
all pass; the exit status is then 1. A text that is no longer there must be replaced
here, with a defect of the same kind. `unchanged` runs the tests without a defect.
"""

import argparse
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
_FAILED = 1  # pytest's exit status where tests ran and failed


class Defect(NamedTuple):
    """An edit of a file of the package."""

    area: str
    file: str
    """Below `electra_tf`."""
    tests: str
    """Arguments of pytest, below `tests`."""
    old: str
    """Text that occurs once."""
    new: str


# Area, file, tests, and the texts before and after each edit.
_TABLE = (
    ("masking", "pretraining/masking.py", "pretraining/test_masking.py",
     ("| (ids_BL == tokens.sep)", "| (ids_BL == tokens.cls)"),
     ("math.ceil(rate * n)", "math.floor(rate * n)"),
     ("(size_B <= remaining_B)", "(remaining_B > 0)")),
    ("sampling", "pretraining/sampling.py", "pretraining/test_sampling.py",
     ("(tokens_BMW, uniform_BM2[..., 1])", "(tokens_BMW, uniform_BM2[..., 0])"),
     ("!= masked.input_ids_BL", "!= masked.masked_ids_BL")),
    ("losses", "pretraining/losses.py", "pretraining/test_losses.py",
     ("tf.reduce_sum(xent_BL * real_BL)", "tf.reduce_sum(xent_BL)"),
     ("(probabilities_BMV - one_hot_BMV)", "probabilities_BMV")),
    ("schedule", "training/schedule.py", "training/test_schedule.py",
     ("step / self.warmup)", "(step + 1) / self.warmup)"),
     ('1 if self.rule == "original" else 0', "0")),
    ("clipping", "training/optimizer.py", "training/test_optimizer.py",
     ("/ tf.maximum(norm, settings.clip_norm)", "/ norm"),
     ("tf.math.is_finite(norm), clip, math.nan", "tf.math.is_finite(norm), clip, 0.0")),
    ("resume", "training/loop.py", "training/test_loop.py",
     ("self._make_batches(step,", "self._make_batches(0,"),
     ("window = MetricWindow.parse(sums)", "window = MetricWindow()")),
    ("resume", "training/checkpoint.py", "training/test_checkpoint.py",
     ("assign(_slots(trainer), checkpoint.slots(), checkpoint.path)", "pass")),
    ("tokenizer", "text/normalization.py", "text/test_tokenizer.py",
     ('unicodedata.category(c) != "Mn"', 'unicodedata.category(c) != "Mc"')),
    ("tokenizer", "text/wordpieces.py", "text/test_tokenizer.py",
     ("start, entries = end, self._later", "start = end")),
    ("span decoding", "tasks/spans.py", "tasks/test_spans.py",
     ("start < settings.max_answer_length", "start <= settings.max_answer_length"),
     ("and window.max_context[start]", "")),
    ("metrics", "tasks/metrics.py", "tasks/test_metrics.py",
     ("labels == 1, predictions == 1", "labels == 0, predictions == 0")),
    ("metrics", "tasks/squad_metrics.py", "tasks/test_squad_metrics.py",
     ("(a|an|the)", "(a|the)")),
    ("conversion", "interop/names.py", "interop/test_conversion.py",
     ("array.reshape(heads, -1, array", "array.reshape(-1, heads, array"),
     ("array.reshape(len(array), -1)", 'array.reshape(len(array), -1, order="F")')),
    ("serving limits", "serving/signatures.py", "serving/test_signatures.py",
     ("positions <= limits.positions", "positions <= 2 * limits.positions")),
    ("serving limits", "serving/signatures.py", "serving/test_signatures.py",
     ("size <= limits.bytes", "size <= 2 * limits.bytes")),
    ("label order", "tasks/text_data.py", "tasks/test_text_data.py",
     ("sorted(set(targets))", "list(dict.fromkeys(targets))")),
    ("label order", "interop/huggingface.py", "interop/test_task_heads.py",
     ("[stored.get(str(n)) for n in range(count)]", "[*stored.values()]"),
     ("{str(n): label for n, label in enumerate(labels)}",
      "{str(n): label for n, label in enumerate(labels[::-1])}")),
)  # fmt: skip
DEFECTS = [Defect(*row[:3], *edit) for row in _TABLE for edit in row[3:]]


def copy_repository(target: pathlib.Path) -> None:
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def run_tests(copy: pathlib.Path, tests: str) -> int:
    """Run tests of the copy until one fails; return pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    # A file that is edited twice in a second would be read from the old bytecode.
    environment = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [*command, "--no-header", *(f"tests/{name}" for name in tests.split())],
        cwd=copy,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    if result.returncode not in (0, _FAILED):
        sys.exit(f"error: the tests {tests} must run:\n{result.stdout[-3000:]}")
    if result.returncode:
        failures = [s for s in result.stdout.splitlines() if s.startswith("FAILED")]
        print(f"    {' '.join(failures)[:160]}", flush=True)
    return result.returncode


def plant(copy: pathlib.Path, defect: Defect) -> bool:
    """Return whether the tests of a defect catch it."""
    path = copy / "electra_tf" / defect.file
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace(defect.old, defect.new), encoding="utf-8")
    try:
        return run_tests(copy, defect.tests) == _FAILED
    finally:
        path.write_text(content, encoding="utf-8")


def check_texts(defects: Iterable[Defect]) -> Iterator[str]:
    """Yield texts that do not occur exactly once, and missing tests."""
    for defect in defects:
        path = ROOT / "electra_tf" / defect.file
        count = path.read_text(encoding="utf-8").count(defect.old)
        if count != 1:
            yield f"{defect.area}: {defect.file} has {count} times: {defect.old}"
        for name in defect.tests.split():
            if not (ROOT / "tests" / name).exists():
                yield f"{defect.area}: no tests {name}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    areas = ["unchanged", *dict.fromkeys(defect.area for defect in DEFECTS)]
    parser.add_argument("areas", nargs="*", default=areas, help=", ".join(areas))
    only = parser.parse_args().areas
    if unknown := set(only) - set(areas):
        sys.exit(f"error: areas: {', '.join(areas)}. Received: {unknown}")
    if moved := list(check_texts(DEFECTS)):
        sys.exit("error: replace what is no longer there:\n" + "\n".join(moved))
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="electra_tf_defects_") as name:
        copy = pathlib.Path(name)
        copy_repository(copy)
        tests = " ".join(sorted({t for d in DEFECTS for t in d.tests.split()}))
        if "unchanged" in only and run_tests(copy, tests):
            sys.exit("error: the tests must pass without a defect")
        for defect in DEFECTS:
            if defect.area in only:
                begin = time.monotonic()
                result = "caught" if plant(copy, defect) else "MISSED"
                counts[result] += 1
                place = f"{defect.area}: {defect.file}: {defect.old.strip()}"
                print(
                    f"{result} in {time.monotonic() - begin:.0f} s: {place}", flush=True
                )
    print(f"{counts['caught']} caught, {counts['MISSED']} missed")
    return int(counts["MISSED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
