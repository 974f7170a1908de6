"""The peer of `benchmark serve`: Hugging Face's tokenizer and classifier on PyTorch."""

import argparse
from collections.abc import Callable

import numpy as np
import torch
import transformers
from benchmark_serve import Ask, Work
from benchmark_torch import _shape


def classifier(options: argparse.Namespace, work: Work) -> Callable[..., Ask]:
    """Requests as a Python server makes them: tokenizer, model, probabilities."""
    from electra_tf.config.loader import load_config

    torch.set_num_threads(options.threads)
    sets = [f"model.vocabulary_size={len(work.vocabulary)}", *options.set]
    shape = _shape(load_config(options.config, sets).model.encoder)
    model = transformers.ElectraForSequenceClassification(shape).eval()
    answer = torch.compile(model) if options.peer == "torch.compile" else model
    tokenizer = transformers.BertTokenizerFast(vocab=options.vocab)
    longest = max(options.lengths)

    def asked(kind: str, rows: int, length: int) -> Ask:
        texts, ids = work.texts(rows, length), work.ids(rows, length)
        array = np.array(ids)

        def from_text():
            return tokenizer(
                texts,
                padding=True,
                truncation=True,
                max_length=longest,
                return_tensors="pt",
            )

        def from_ids():
            ids_BL = torch.from_numpy(array)
            zeros_BL = torch.zeros_like(ids_BL)
            return {
                "input_ids": ids_BL,
                "token_type_ids": zeros_BL,
                "attention_mask": zeros_BL + 1,
            }

        if from_text()["input_ids"].tolist() != ids:
            raise SystemExit("error: the tokenizer makes other pieces of the texts")
        given = from_text if kind == "text" else from_ids

        def ask() -> object:
            with torch.inference_mode():
                return answer(**given()).logits.softmax(-1).numpy()

        return ask

    return asked
