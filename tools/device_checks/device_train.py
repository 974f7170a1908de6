"""Move a run of pre-training to where JAX has a GPU or TPU, and back.

    electra-tf pretrain --config=tiny --data=records --model_dir=run   # stop it: Ctrl-C
    tools/device_train export --run=run --data=records --folder=step
    python step/run.py --device=gpu
    tools/device_train import --run=run --folder=step

`export` writes the newest checkpoint's state, the whole train step as one program, the
records, and their order to the end of the run. With `--kernels=gpu` the step has
kernels for GPUs, which a CPU interprets with `--device=cpu`. `run.py` trains on, on a
machine with JAX, flatbuffers and NumPy; TensorFlow is not needed there. `import` writes
its state as a checkpoint, from which `pretrain` resumes and which all commands read.
`import --weights` reads the smaller `weights.npz`, in float16: fine-tuning reads such a
checkpoint, but `pretrain` cannot resume from it.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

from device_link import link_for
from device_programs import export_program, to_stablehlo

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # if the package is not installed
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def export_run(options: argparse.Namespace) -> None:
    """Write the folder that `run.py` trains in."""
    options.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, *sys.argv, "--only_tensorflow"]
    on_cpu = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    if code := subprocess.run(command, env=on_cpu).returncode:
        sys.exit(code)
    os.environ |= {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    path = options.folder / "step.hlo"
    program = link_for(to_stablehlo(path.read_bytes()), options.device)
    exported, aliases = export_program(program)
    path.unlink()
    (options.folder / "step.jax").write_bytes(exported)
    path = options.folder / "description.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    parameters = enumerate(description["state"], 3)  # after the batch's fields
    description["results"] = {n: aliases[p] for p, n in parameters if p in aliases}
    path.write_text(json.dumps(description, indent=1), encoding="utf-8")
    loop = pathlib.Path(__file__).with_name("device_loop.py")
    shutil.copy(loop, options.folder / "run.py")
    first, steps = description["first_step"], description["steps"]
    print(f"{options.folder}: steps {first + 1:,} to {steps:,}, for run.py in it")


def move(options: argparse.Namespace) -> None:
    """Carry out a command's part that needs TensorFlow."""
    from device_move import read_run, write_run

    from electra_tf.errors import InputError

    try:
        if options.command == "export":
            write_run(options.run, options.data, options.folder, options.kernels)
        else:
            print(read_run(options.run, options.folder, options.weights))
    except InputError as error:
        sys.exit(f"error: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("command", choices=("export", "import"))
    add("--run", required=True, help="run directory of pretrain")
    add("--folder", required=True, type=pathlib.Path, help="with run.py and its files")
    add("--data", help="for export: the run's records")
    add("--kernels", choices=("any", "gpu"), default="any", help="for export")
    add("--device", choices=("gpu", "cpu"), default="gpu", help="with the gpu kernels")
    add("--weights", action="store_true", help="for import: read weights.npz alone")
    add("--only_tensorflow", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.command == "export" and not options.data:
        parser.error("export must have the run's records. Pass --data=DIR")
    if options.command == "export" and not options.only_tensorflow:
        export_run(options)
    else:
        move(options)


if __name__ == "__main__":
    main()
