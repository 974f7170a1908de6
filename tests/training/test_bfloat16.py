"""The suggestion of bfloat16."""

import pytest
import tensorflow as tf

from electra_tf.training.bfloat16 import precision_hints


@pytest.mark.parametrize(
    ("flags", "precision", "is_faster"),
    [
        ("fpu avx512f avx512_bf16", "float32", True),
        ("fpu amx_bf16 amx_tile", "float32", True),
        ("fpu avx512f", "float32", False),
        ("fpu avx512_bf16", "mixed_bfloat16", False),
    ],
)
def test_processors_that_multiply_bfloat16(tmp_path, flags, precision, is_faster):
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    hints = precision_hints(precision, str(path))
    assert len(hints) == is_faster
    assert all("--set training.precision=mixed_bfloat16" in hint for hint in hints)


@pytest.mark.parametrize(
    ("capabilities", "is_faster"),
    [([(8, 0)], True), ([(9, 0), (7, 5)], False), ([None], False)],
)
def test_gpus_decide_where_there_are_some(
    tmp_path, monkeypatch, capabilities, is_faster
):
    details = [{"compute_capability": one} if one else {} for one in capabilities]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: details)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: gpu)
    path = tmp_path / "cpuinfo"
    path.write_text("flags : avx512_bf16")
    assert bool(precision_hints("float32", str(path))) == is_faster
