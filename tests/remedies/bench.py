"""Follow the remedies of errors. No text is compared."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from conftest import GOLDEN

from electra_tf.errors import InputError

INTEROP = GOLDEN / "interop"
RUN, RECORDS = GOLDEN / "saved" / "run", GOLDEN / "saved" / "records"
VOCAB = GOLDEN / "vocab.txt"
DISCRIMINATOR = INTEROP / "huggingface_discriminator"
GENERATOR = INTEROP / "huggingface_generator"
PAIR = f"{DISCRIMINATOR},{GENERATOR}"

Calls = Sequence[Callable[[pathlib.Path], Any]]
"""A call that fails, then a call for each remedy, in one empty folder."""


def write(path: pathlib.Path, content: Any) -> pathlib.Path:
    """Write text, or a value as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def remedy_test(cases: Mapping[str, Calls]) -> Callable:
    """Return a test of cases by name."""

    @pytest.mark.parametrize("calls", cases.values(), ids=cases.keys())
    def test_a_remedy_works(calls, tmp_path):
        bad, *remedies = calls
        with pytest.raises(InputError):
            bad(tmp_path)
        assert remedies
        for remedy in remedies:
            remedy(tmp_path)

    return test_a_remedy_works
