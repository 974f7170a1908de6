"""Compare the CPU time of a served classifier between formats and runtimes.

All peers run one model with random weights, by default of 6 layers of width 384, in
float32 and in int8, and get texts or ids. A text of a given length consists of words of
the vocabulary.

  electra_tf    our SavedModel, which has the tokenizer in its graph; always runs
  litert        our LiteRT files
  onnxruntime   our ONNX files
  openvino      our float32 ONNX file, and the same quantized by NNCF; not by default,
                as it needs the extra `openvino`

All but the SavedModel get the ids of texts from the library `tokenizers`. The logits of
the float32 models must equal the SavedModel's to 1e-3. At each point of the grid the
peers run in turn for several rounds. The first requests of a point, which trace and
compile, are not measured.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

import peers
from peers import OPENVINO, OURS

INT8 = ".int8"
FILES = {
    OURS: {"": "saved_model/1"},
    "litert": {"": "litert/1/model.float32.tflite", INT8: "litert/1/model.int8.tflite"},
    "onnxruntime": {"": "onnx/1/model.onnx", INT8: "onnx/1/model.int8.onnx"},
    OPENVINO: {"": "onnx/1/model.onnx", INT8: "onnx/1/openvino.int8.xml"},
}
"""Models of each peer by the suffix of their precision."""
OUR_RUNTIMES = OURS, "litert"
TOLERANCE = 1e-3
SHAPE = [f"model.{n}" for n in ("depth=6", "width=384", "embedding=384", "heads=12")]
Point = tuple[str, str, int, int]
"""Suffix of the precision, kind of input, number of rows, wordpieces of each."""


class Requests:
    """Texts, and their ids, which all peers receive."""

    def __init__(self, options: argparse.Namespace):
        with open(options.vocab, encoding="utf-8") as file:
            words = file.read().removesuffix("\n").split("\n")
        self._ids = {word: number for number, word in enumerate(words)}
        self._words = [w for w in words if w.isascii() and w.isalpha() and w.islower()]

    def texts(self, rows: int, length: int) -> list[str]:
        """Return texts of a number of wordpieces, with [CLS] and [SEP]."""
        return [" ".join(self._row(row, length)) for row in range(rows)]

    def inputs(self, rows: int, length: int) -> dict:
        """Return the inputs of the function of ids for these texts."""
        import numpy as np

        lines = [["[CLS]", *self._row(row, length), "[SEP]"] for row in range(rows)]
        ids = np.array([[self._ids[word] for word in line] for line in lines], np.int32)
        return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids**0}

    def _row(self, row: int, length: int) -> list[str]:
        step, count = 7919 * (row + 1), len(self._words)
        return [self._words[step * index % count] for index in range(1, length - 1)]


def export(options: argparse.Namespace, names: list[str]) -> None:
    import keras

    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.serving.export import export as write
    from electra_tf.serving.served_tasks import task_export
    from electra_tf.sources import PretrainedEncoder
    from electra_tf.tasks.classifier import TextClassifier
    from electra_tf.text.tokenizer import WordPieceTokenizer
    from electra_tf.text.vocab import Vocabulary

    keras.utils.set_random_seed(0)
    tokenizer = WordPieceTokenizer(Vocabulary.read(options.vocab))
    sets = [f"model.vocabulary_size={len(tokenizer.vocabulary)}", *options.set]
    shape = load_config(options.config, sets).model.encoder
    overrides = {"data.max_length": max(options.lengths)}
    settings = load_config(root=FinetuningConfig, overrides=overrides)
    pretrained = PretrainedEncoder(shape, tokenizer, None, "random weights")
    model = TextClassifier(pretrained, ["no", "yes"], settings)
    for name in sorted({FILES[name][""].split("/")[0] for name in names}):
        folder = f"{options.work}/{name}"
        write(task_export(model), folder, export_format=name, log=lambda line: None)
    if OPENVINO in names:
        files = (f"{options.work}/{file}" for file in FILES[OPENVINO].values())
        quantize(*files, Requests(options), max(options.lengths))


def quantize(source: str, target: str, requests: Requests, length: int) -> None:
    import nncf
    import openvino

    inputs = requests.inputs(32, length)
    rows = [{name: ids[i : i + 1] for name, ids in inputs.items()} for i in range(32)]
    model = nncf.quantize(
        openvino.Core().read_model(source),
        nncf.Dataset(rows),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(rows),
    )
    openvino.save_model(model, target, compress_to_fp16=False)


def open_model(peer: str, path: str, threads: int) -> Callable:
    if peer == "litert":
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(path, num_threads=threads).get_signature_runner()
        return lambda inputs: runner(**inputs)
    if peer == OPENVINO:
        import openvino

        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
        if INT8 not in path:  # by default bfloat16 where the CPU has it
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        model = openvino.Core().compile_model(path, "CPU", settings)
        names = [output.any_name for output in model.outputs]
        return lambda inputs: dict(zip(names, model(inputs).values(), strict=True))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options)
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def open_saved_model(path: str, requests: Requests) -> Callable[..., Callable]:
    """Return a maker of requests to the SavedModel, loaded with TensorFlow alone."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  its operations

    model = tf.saved_model.load(path)

    def make_request(kind: str, rows: int, length: int, model=model) -> Callable:
        # The default argument keeps the model alive: its functions do not.
        texts, inputs = requests.texts(rows, length), requests.inputs(rows, length)
        given = {"text": texts} if kind == "text" else inputs
        name = "serving_default" if kind == "text" else "tokens"
        run = model.signatures[name]
        return lambda: run(**{key: tf.constant(value) for key, value in given.items()})

    return make_request


def open_ids(
    peer: str, path: str, options: argparse.Namespace, requests: Requests
) -> Callable[..., Callable]:
    """Return a maker of requests to a function of ids, with a tokenizer before it."""
    import numpy as np
    from tokenizers import Tokenizer

    run = open_model(peer, path, options.threads)
    folder = os.path.dirname(path)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    with open(f"{folder}/about.json", encoding="utf-8") as file:
        tokenizer.enable_truncation(json.load(file)["max_length"])
    tokenizer.enable_padding()

    def encode(texts: list[str]) -> dict:
        rows = tokenizer.encode_batch_fast(texts)
        columns = zip(
            *((r.ids, r.type_ids, r.attention_mask) for r in rows), strict=True
        )
        names = "token_ids", "segment_ids", "padding_mask"
        return dict(zip(names, (np.array(c, np.int32) for c in columns), strict=True))

    def make_request(kind: str, rows: int, length: int) -> Callable:
        texts, inputs = requests.texts(rows, length), requests.inputs(rows, length)
        return lambda: run(encode(texts) if kind == "text" else inputs)

    return make_request


def serve(channel: peers.Channel, options: argparse.Namespace) -> None:
    """Answer points, at first with logits, then with the milliseconds of requests."""
    import numpy as np

    peer, requests, makers = channel.peer, Requests(options), {}
    for suffix, file in FILES[peer].items():
        path = f"{options.work}/{file}"
        if peer == OURS:
            makers[suffix] = open_saved_model(path, requests)
        else:
            makers[suffix] = open_ids(peer, path, options, requests)
    channel.answer()
    sends: dict[Point, Callable] = {}
    for point in channel.questions():
        if point in sends:
            channel.answer(cpu_milliseconds(sends[point], options.seconds))
        else:
            suffix, *rest = point
            sends[point] = makers[suffix](*rest)
            sends[point]()
            channel.answer(np.array(sends[point]()["logits"]))


def cpu_milliseconds(send: Callable, seconds: float) -> float:
    """Return the median CPU time, of all threads, of the requests of some seconds."""
    times, end = [], time.process_time() + seconds
    while not times or time.process_time() < end:
        begin = time.process_time()
        send()
        times.append(1e3 * (time.process_time() - begin))
    return statistics.median(times)


def ratio(times: Mapping[tuple[str, str], list[float]], suffix: str) -> str:
    """Return our lowest time over the lowest of the others, paired by rounds."""
    groups: tuple[list, list] = ([], [])
    for (name, precision), values in times.items():
        if precision == suffix:
            groups[name not in OUR_RUNTIMES].append(values)
    if not all(groups):
        return "-"
    ours, others = ([min(values) for values in zip(*g, strict=True)] for g in groups)
    return f"{peers.ratio(ours, others):.2f}"


def measure_point(found: list[peers.Peer], point: tuple, options) -> dict[str, float]:
    """Print a line of the table; return the differences of the logits by peer."""
    pairs = [(peer, suffix) for peer in found for suffix in FILES[peer.name]]
    logits = {p.name + suffix: p.ask((suffix, *point)) for p, suffix in pairs}
    differences = {k: float(abs(v - logits[OURS]).max()) for k, v in logits.items()}
    for name, difference in differences.items():
        if not (difference <= TOLERANCE or name.endswith(INT8)):
            sys.exit(f"error: the logits of {name} differ by {difference:.1e}")
    times: dict = {(peer.name, suffix): [] for peer, suffix in pairs}
    for number in range(options.rounds):
        for peer, suffix in pairs[:: -1 if number % 2 else 1]:
            times[peer.name, suffix].append(peer.ask((suffix, *point)))
    kind, rows, length = point
    cells = "".join(f"{statistics.median(row):18.2f}" for row in times.values())
    ratios = "".join(f"{ratio(times, suffix):>10}" for suffix in ("", INT8))
    print(f"{kind:7}{rows:5} x{length:4}{cells}{ratios}", flush=True)
    return differences


def measure(found: list[peers.Peer], options: argparse.Namespace) -> None:
    columns = [peer.name + suffix for peer in found for suffix in FILES[peer.name]]
    heads = "".join(f"{name:>18}" for name in columns)
    print(
        f"\n{options.threads} threads, CPU ms, medians of {options.rounds} rounds of "
        f"{options.seconds:g} s; then {' or '.join(OUR_RUNTIMES)} over the fastest of "
        f"the others\n{'':18}{heads}{'float32':>10}{'int8':>10}"
    )
    points = [
        (kind, rows, length)
        for kind in options.kinds
        for rows, length in (map(int, point.split("x")) for point in options.points)
    ]
    differences = [measure_point(found, point, options) for point in points]
    print(f"logits differ from those of {OURS} by at most:")
    for name in columns:
        print(f"  {name:18}{max(row[name] for row in differences):.1e}")


def parse() -> argparse.Namespace:
    parser = peers.parser(__doc__, (OURS, "litert", "onnxruntime"))
    parser.set_defaults(config=None)
    add = parser.add_argument
    add("--vocab", default=peers.standard_file(peers.VOCAB))
    add("--kinds", nargs="+", default=["text", "tokens"], help="of input")
    points = ["1x16", "1x128", "8x128", "32x128"]
    add("--points", nargs="+", default=points, help="rows x wordpieces, from 3")
    add("--seconds", type=float, default=0.5, help="CPU seconds per round")
    options = parser.parse_args()
    if not options.vocab:
        sys.exit("error: pass --vocab=FILE (ELECTRA_TF_DATA is unset)")
    if options.config is None:
        options.config, options.set = "small", [*SHAPE, *options.set]
    options.lengths = [int(point.split("x")[1]) for point in options.points]
    if OURS not in options.peers.split(","):
        options.peers = f"{OURS},{options.peers}"
    return options


def main() -> None:
    options = parse()
    names = peers.names(options, tuple(FILES), [OURS])
    with tempfile.TemporaryDirectory() as folder:
        options.work = folder
        export(options, names)
        found = [peers.Peer(name, serve, options) for name in names]
        measure(found, options)
        for peer in found:
            peer.end()


if __name__ == "__main__":
    main()
