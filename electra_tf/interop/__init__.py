"""Weights of other libraries, read and written without these libraries.

`names.py` is the one table of weight names. `network.py` is a network whose weights
have the names and layouts of its library. `huggingface.py`, `keras_hub.py`,
`model_garden.py` and `checkpoint.py` read and write files, `tf1.py` reads them.
"""
