"""Train where JAX has a GPU or TPU, and bring the result back.

    tools/device_train export --config=tiny --data=records --folder=step
    tools/device_train compile --folder=step --topology=h100 --python=OTHER/bin/python
    python step/run.py --device=gpu --minutes=10
    tools/device_train import --weights --run=run --folder=step

`export` writes the whole train step as one program, the records as ranks of their
frequency in parts of an xz file, and programs of their order and of the first state,
which are made there from the seed. `--run`, in place of `--config`, continues a run
from its newest checkpoint, as if it had stayed. With `--kernels=gpu` the step has
kernels for GPUs, which a CPU interprets with `--device=cpu`. Records that fit a length
of `--lengths` are in batches of that length, with more rows: a program for each length.
A run with `--begin` begins with the weights of a run that was exported to that folder
and trained there, as with `pretrain --init_checkpoint`; give it to `run.py` too.

`compile` compiles the step beforehand, with the JAX of another interpreter: it must be
that of the machine. `run.py` uses the program if it loads, on a machine with JAX,
flatbuffers and NumPy; TensorFlow is not needed there. `import` writes its state as a
checkpoint, from which `pretrain` resumes and which all commands read. `import
--weights` reads the smaller `weights.npz`, in float16: fine-tuning reads such a
checkpoint, but `pretrain` cannot resume from it.
"""

import argparse
import os
import pathlib
import subprocess
import sys

import device_programs
from device_table import DEVICES

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # if the package is not installed
_CUDA = "13.0.0"  # of the machines
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def export(options: argparse.Namespace) -> int:
    options.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, *sys.argv, "--only_tensorflow"]
    on_cpu = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    if code := subprocess.run(command, env=on_cpu).returncode:
        return code
    os.environ |= {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    device_programs.export_folder(options.folder, options.device)
    size = sum(path.stat().st_size for path in options.folder.iterdir())
    print(f"{options.folder}: {size:,} bytes; start run.py in it")
    return 0


def compile_step(options: argparse.Namespace) -> int:
    command = [options.python, options.folder / "run.py", "--device=cpu", "--compile"]
    if options.python != sys.executable:
        os.environ.pop("PYTHONPATH", None)
    if options.topology:
        device_programs.set_environment(options.topology)
        table = pathlib.Path(__file__).with_name("device_table.py")
        target = [options.python, table, options.topology, _CUDA]
        command.append(subprocess.check_output(target, text=True).strip())
    return subprocess.run(command).returncode


def move(options: argparse.Namespace) -> int:
    """Carry out a command's part that needs TensorFlow."""
    import device_export

    from electra_tf.errors import InputError

    try:
        if options.command == "export":
            device_export.write_run(options)
        else:
            run = device_export.read_run(options.run, options.folder, options.weights)
            print(run)
    except InputError as error:
        sys.exit(f"error: {error}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("command", choices=("export", "compile", "import"))
    add("--folder", required=True, type=pathlib.Path, help="with run.py and its files")
    add("--run", help="run directory of pretrain")
    add("--config", help="for export: that of a new run")
    add("--set", action="append", default=[], help="--set of pretrain")
    add("--data", help="for export: the run's records")
    add("--begin", type=pathlib.Path, help="for export: see above")
    add("--kernels", choices=("any", "gpu"), default="any", help="for export")
    add("--lengths", type=int, nargs="+", default=[], help="for export: see above")
    add("--device", choices=("gpu", "cpu"), default="gpu", help="with the gpu kernels")
    gpus = [name for name, device in DEVICES.items() if device.cuda]
    add("--topology", choices=gpus, help="for compile; default: the device here")
    add("--python", default=sys.executable, help="for compile: an interpreter with JAX")
    add("--weights", action="store_true", help="for import: read weights.npz alone")
    add("--only_tensorflow", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.command == "export":
        if not options.data or bool(options.run) == bool(options.config):
            parser.error("export needs --data=DIR, and one of --config and --run")
        if options.run and (options.lengths or options.begin):
            parser.error("--lengths and --begin need --config, a new run")
        return move(options) if options.only_tensorflow else export(options)
    if options.command == "compile":
        return compile_step(options)
    if not options.run:
        parser.error("import needs --run=DIR")
    return move(options)


if __name__ == "__main__":
    sys.exit(main())
