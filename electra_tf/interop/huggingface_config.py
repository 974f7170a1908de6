"""Read the config.json of transformers: sizes, and what else decides a network.

Every key is read, ignored by name, or stops the conversion; others are in a note.

Sources: transformers configuration_{electra,bert,utils}.py; config.json files
that google, hfl, klue and others published, which leave keys out.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.model import shape_of_config
from electra_tf.interop.names import Activation
from electra_tf.text.vocab import PAD

CONFIG = "config.json"
# Of sentence-transformers: its modules, and a glob of the settings of pooling.
MODULES, POOLING = "modules.json", "*_Pooling/config.json"
OWN = "electra_tf"  # key for this package's settings of a fine-tuned model
SIZES = {
    "depth": "num_hidden_layers",
    "width": "hidden_size",
    "embedding": "embedding_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "vocabulary_size": "vocab_size",
    "max_positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
    "layer_norm_epsilon": "layer_norm_eps",
}
"""Keys of an encoder's shape."""
_EXACT = ("gelu", "gelu_python")
_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
_READ = {
    *SIZES.values(), OWN, "model_type", "architectures", "hidden_act", "pad_token_id",
    "id2label", "problem_type", "classifier_dropout",
}  # fmt: skip
# The only values that this network has beside null, and what others mean.
_FIXED: Mapping[str, tuple[Any, str]] = {
    "is_decoder": (False, "each token attends to those before it alone"),
    "is_encoder_decoder": (False, "there is a decoder too"),
    "add_cross_attention": (False, "there is attention to another encoder"),
    "position_embedding_type": ("absolute", "positions are part of the attention"),
    "use_task_id": (False, "there is a table of tasks"),
    "norm_first": (False, "the norms stand before attention and feed-forward network"),
    "use_rms_norm": (False, "the norms do not subtract the mean"),
    "rope_theta": (None, "positions are part of the attention"),
    "pruned_heads": ({}, "layers have different numbers of heads"),
    "quantization_config": ({}, "the weights are not floating-point numbers"),
    "auto_map": ({}, "the network is computed by code of its own, which is not run"),
}
# Of files and versions, of training, of other heads than those that are read, of
# memory and the form of outputs, and of the generation of texts.
_IRRELEVANT = """
_name_or_path name_or_path transformers_version torch_dtype dtype tokenizer_class
_num_labels num_labels label2id finetuning_task task_specific_params
gradient_checkpointing generator_size directionality
pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
pooler_size_per_head pooler_type summary_activation summary_first_dropout
summary_last_dropout summary_proj_to_labels summary_type summary_use_proj
tie_word_embeddings tie_encoder_decoder torchscript use_bfloat16 use_cache
chunk_size_feed_forward return_dict output_attentions output_hidden_states
output_past xla_device attn_implementation _attn_implementation
_attn_implementation_autoset _attn_implementation_internal
bos_token_id eos_token_id eos_token_ids sep_token_id cls_token_id
decoder_start_token_id cross_attention_hidden_size do_sample early_stopping
length_penalty max_length min_length num_beams num_beam_groups diversity_penalty
num_return_sequences repetition_penalty temperature top_k top_p typical_p
no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
forced_bos_token_id forced_eos_token_id remove_invalid_values
exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
return_dict_in_generate output_scores prefix
"""


def check_network(config: Mapping[str, Any], folder: str) -> None:
    """Reject the config of a network that is neither an ELECTRA nor a BERT."""
    path, kind = os.path.join(folder, CONFIG), config.get("model_type")
    if kind is None and str(config.get("architectures")).startswith("['Roberta"):
        kind = "roberta"
    if kind not in (None, "electra", "bert"):
        raise InputError(
            f"model_type of {path} must be electra or bert, not {kind!r:.80}"
        )
    for key, (value, meaning) in _FIXED.items():
        if config.get(key) not in (None, value):
            raise InputError(
                f"{key} of {path} must be {value!r} or left out, not "
                f"{config[key]!r:.80}: {meaning}"
            )


def read_sizes(
    config: Mapping[str, Any], words: tuple[int, ...], folder: str
) -> EncoderConfig:
    """Return the shape of the encoder whose token table has the shape `words`."""
    path = os.path.join(folder, CONFIG)
    return shape_of_config(
        path,
        {**config, "vocab_size": words[0]},
        SIZES,
        embedding=words[1],
        max_positions=512,
        segments=2,
    )


def read_activation(config: Mapping[str, Any], folder: str) -> Activation:
    """Return how gelu is computed."""
    name = config.get("hidden_act", "gelu")
    if name in _EXACT:
        return "gelu"
    if name in _TANH:
        return "gelu_tanh"
    raise InputError(
        f"hidden_act of {folder}/{CONFIG} must be {', '.join(_EXACT + _TANH)}, not "
        f"{name!r}"
    )


def notes(
    config: Mapping[str, Any], entries: Sequence[str], folder: str
) -> Iterator[str]:
    """Yield notes on keys that are not read, on another [PAD], and on modules.

    `entries`: those of the vocabulary; empty if there is none.
    """
    path, known = f"{folder}/{CONFIG}", {*_READ, *_FIXED, *_IRRELEVANT.split()}
    unread = [
        f"{name}: {value!r:.40}"
        for name, value in sorted(config.items())
        if name not in known and value is not None
    ]
    if unread:
        yield f"keys of {path} that are not read: {', '.join(unread[:8])}"
    number = config.get("pad_token_id")
    if entries and number not in (None, pad := entries.index(PAD)):
        yield f"pad_token_id of {path} is {number!r:.80}; [PAD] is {pad}, and counts"
    if os.path.isfile(os.path.join(folder, MODULES)):
        yield (
            f"{folder}: the encoder alone is read, without the other modules of "
            f'{MODULES}; pass Encoder.embed the pooling of {POOLING}, "mean" or "cls"'
        )
