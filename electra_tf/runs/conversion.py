"""Convert a model between this package and other libraries."""

import dataclasses
import os
from typing import Literal

from electra_tf import sources
from electra_tf.interop.conversion import (
    WRITERS,
    Conversion,
    check_target,
    convert,
    reject_lost_heads,
)
from electra_tf.interop.names import Format
from electra_tf.interop.task_heads import HeadOptions
from electra_tf.tasks import load

_NO_OPTIONS = HeadOptions()


def convert_checkpoint(
    source: str | os.PathLike,
    target: str | os.PathLike,
    format: Format = "electra_tf",
    *,
    part: Literal["all", "discriminator", "generator"] = "all",
    vocab: str | None = None,
    sharing: Literal["auto", "none"] = "auto",
    force: bool = False,
    drop_head: bool = False,
    head: HeadOptions = _NO_OPTIONS,
) -> Conversion:
    """Convert a pre-trained or fine-tuned model, and compare source and target.

    Source and target are computed on a probe batch by a NumPy forward pass that reads
    each by its own names. The target appears under its name after that.

    Args:
        source: A checkpoint folder or run of this package, an output of fine-tuning, a
            Hugging Face folder, a TensorFlow 1 or Model Garden checkpoint, a KerasHub
            preset, an id of the Hugging Face hub, or a URL of an object store; or two
            of them, `DISCRIMINATOR,GENERATOR`.
        target: A folder that does not exist.
        format: Format of the target.
        part: Which networks of a pair to convert.
        vocab: A vocabulary for a source without one, or in place of its own.
        sharing: `none` gives a pair's networks tables of their own; `auto` shares equal
            ones and rejects copies that differ.
        force: Keep the target even if its outputs differ by more than 1e-4.
        drop_head: Convert the encoder of a fine-tuned model without its head.
        head: What the source does not say about the head of a fine-tuned model.

    Returns:
        A report; `str` of it is for people.

    Raises:
        InputError: The source is damaged or incomplete, the target exists or has no
            such head, or the outputs differ.

    Example:
        import electra_tf

        electra_tf.convert_checkpoint("run", "for_transformers", "huggingface")
    """
    target = os.path.normpath(os.fspath(target))
    check_target(target)
    found = sources.open(source, vocab, head)
    model = found.pretrained if drop_head else found.fine_tuned or found.pretrained
    if not drop_head:
        reject_lost_heads(model, format)
    if part != "all":
        model = model.select(part)
    if sharing == "none":
        model = dataclasses.replace(model, separate_tables=True)
    write = WRITERS[format]
    if format == "electra_tf" and model.head is not None:
        write = load.write
    return convert(model, found.format, target, format, write, force)
