"""Peer of `benchmark serve`: Hugging Face's tokenizer and classifier on PyTorch."""

import argparse
from collections.abc import Callable

import numpy as np
import torch
import transformers
from benchmark_serve import Requests, Send
from benchmark_torch import make_config


def classifier(options: argparse.Namespace, requests: Requests) -> Callable[..., Send]:
    """Return a maker of requests: tokenizer, model, probabilities."""
    from electra_tf.config.loader import load_config

    torch.set_num_threads(options.threads)
    sets = [f"model.vocabulary_size={len(requests.vocabulary)}", *options.set]
    config = make_config(load_config(options.config, sets).model.encoder)
    model = transformers.ElectraForSequenceClassification(config).eval()
    compiled = torch.compile(model) if options.peer == "torch.compile" else model
    tokenizer = transformers.BertTokenizerFast(vocab=options.vocab)
    max_length = max(options.lengths)

    def make_request(kind: str, rows: int, length: int) -> Send:
        texts, ids = requests.texts(rows, length), requests.ids(rows, length)
        array = np.array(ids)

        def from_text():
            return tokenizer(
                texts,
                padding=True,
                truncation=True,
                max_length=max_length,
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
            raise SystemExit("error: the tokenizer returns other ids for the texts")
        make_inputs = from_text if kind == "text" else from_ids

        def send() -> object:
            with torch.inference_mode():
                return compiled(**make_inputs()).logits.softmax(-1).numpy()

        return send

    return make_request
