"""Plant a defect in a copy of the package, and run the tests that must fail.

    .venv-test/bin/python tools/planted_defects.py [masking resume ...]

Each defect replaces one text of one file. It is caught if a test fails, and missed if
all pass; the exit status is then 1. A text that is no longer there must be replaced
here, with a defect of the same kind.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
_FAILED = 1  # pytest's exit status where tests ran and failed


class Defect(NamedTuple):
    area: str
    file: str
    """Below `electra_tf`."""
    tests: str
    """A file below `tests`."""
    old: str
    """Text that occurs once."""
    new: str


# Area, file, tests, and the texts before and after each edit.
_TABLE = (
    ("masking", "pretraining/masking.py", "pretraining/test_masking.py",
     ("| (ids_BL == tokens.sep)", "| (ids_BL == tokens.cls)"),
     ("(size_B <= remaining_B)", "(remaining_B > 0)")),
    ("masking", "config/pretraining.py", "pretraining/test_masking.py",
     ("math.ceil(fractions", "math.floor(fractions")),
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
     ("first_batch=step,", "first_batch=0,"),
     ("window = MetricWindow.parse(sums)", "window = MetricWindow()")),
    ("resume", "training/checkpoint.py", "training/test_checkpoint.py",
     ("assign(_slots(trainer), slots, checkpoint.path)", "pass")),
    ("tokenizer", "text/normalization.py", "text/test_tokenizer.py",
     ('unicodedata.category(c) != "Mn"', 'unicodedata.category(c) != "Mc"')),
    ("tokenizer", "text/wordpieces.py", "text/test_tokenizer.py",
     ("start, entries = end, self._later", "start = end")),
    ("span decoding", "tasks/spans.py", "tasks/test_spans.py",
     ("start < settings.max_answer_length", "start <= settings.max_answer_length"),
     ("and window.max_context[start]", "")),
    ("metrics", "tasks/metrics.py", "tasks/test_metrics.py",
     ("np.equal(labels, 1), np.equal(found, 1)", "np.equal(labels, 0), found")),
    ("metrics", "tasks/squad_metrics.py", "tasks/test_squad_metrics.py",
     ("(a|an|the)", "(a|the)")),
    ("conversion", "interop/names.py", "interop/test_conversion.py",
     ("(heads, size // heads, last)", "(size // heads, heads, last)"),
     ("array.reshape(shape)", 'array.reshape(shape, order="F")')),
    ("serving limits", "serving/signatures.py", "serving/test_signatures.py",
     ("positions <= limits.positions", "positions <= 2 * limits.positions")),
    ("serving limits", "serving/signatures.py", "serving/test_signatures.py",
     ("size <= limits.bytes", "size <= 2 * limits.bytes")),
    ("label order", "tasks/text_data.py", "tasks/test_text_data.py",
     ("labels=sorted(counts)", "labels=list(counts)")),
    ("label order", "interop/huggingface.py", "interop/test_task_heads.py",
     ("[stored.get(str(n)) for n in range(count)]", "[*stored.values()]"),
     ("{str(n): label for n, label in enumerate(labels)}",
      "{str(n): label for n, label in enumerate(labels[::-1])}")),
)  # fmt: skip
DEFECTS = [Defect(*row[:3], *edit) for row in _TABLE for edit in row[3:]]


def check_texts(defects: Iterable[Defect]) -> Iterator[str]:
    """Yield texts that do not occur exactly once, and missing tests."""
    for defect in defects:
        path = ROOT / "electra_tf" / defect.file
        count = path.read_text(encoding="utf-8").count(defect.old)
        if count != 1:
            yield f"{defect.area}: {defect.file} has {count} times: {defect.old}"
        if not (ROOT / "tests" / defect.tests).exists():
            yield f"{defect.area}: no tests {defect.tests}"


def is_caught(copy: pathlib.Path, defect: Defect) -> bool:
    path = copy / "electra_tf" / defect.file
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace(defect.old, defect.new), encoding="utf-8")
    try:
        return not pass_tests(copy, [defect.tests])
    finally:
        path.write_text(content, encoding="utf-8")


def pass_tests(copy: pathlib.Path, tests: Iterable[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    # A file that is edited twice in a second would be read from the old bytecode.
    environment = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    status = subprocess.run(
        [*command, *(f"tests/{name}" for name in tests)],
        cwd=copy,
        env={**os.environ, **environment},
    ).returncode
    if status not in (0, _FAILED):
        sys.exit("error: the tests must run")
    return status == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    areas = list(dict.fromkeys(defect.area for defect in DEFECTS))
    parser.add_argument("areas", nargs="*", default=areas, help=", ".join(areas))
    only = parser.parse_args().areas
    if unknown := set(only) - set(areas):
        sys.exit(f"error: areas: {', '.join(areas)}. Received: {unknown}")
    if moved := list(check_texts(DEFECTS)):
        sys.exit("error: replace what is no longer there:\n" + "\n".join(moved))
    defects = [defect for defect in DEFECTS if defect.area in only]
    with tempfile.TemporaryDirectory(prefix="electra_tf_defects_") as name:
        copy = pathlib.Path(name)
        shutil.copy(ROOT / "setup.cfg", copy)
        for folder in ("electra_tf", "configs", "tests", "tools"):
            shutil.copytree(ROOT / folder, copy / folder)
        if not pass_tests(copy, sorted({defect.tests for defect in defects})):
            sys.exit("error: the tests must pass without a defect")
        missed = [defect for defect in defects if not is_caught(copy, defect)]
    if missed:
        sys.exit("\n".join(f"MISSED: {d.area}: {d.file}: {d.old}" for d in missed))
    print(f"all {len(defects)} defects were caught")


if __name__ == "__main__":
    main()
