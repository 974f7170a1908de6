"""Weights of other libraries, read and written without these libraries.

`names.py` is the one table of weight names, and `model.py` a network in this package's
names. `huggingface.py`, `keras_hub.py`, `model_garden.py` and `checkpoint.py` read and
write files, `tf1.py` reads them.

A Hugging Face folder becomes a layer in five steps: `sources.py` finds the folder,
`huggingface.py` reads it with `tensors.py`, `model.py` renames its weights, and
`keras_networks.py` creates the layer.
"""

MODEL = "model.keras"  # the fine-tuned model in the output folder of finetune
