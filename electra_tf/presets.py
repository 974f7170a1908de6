"""List the models that ship with this package: size, scores and licence.

Each name is accepted wherever a checkpoint is: electra-tf finetune --checkpoint=NAME
"""

from absl import flags

from electra_tf.preset_files import FOLDER, preset_facts, preset_names

FLAGS = flags.FlagValues()


def main() -> None:
    """Print a paragraph for each preset."""
    if not preset_names():
        print("no preset ships with this version")
    for name in preset_names():
        facts = preset_facts(name)
        size = sum(path.stat().st_size for path in (FOLDER / name).iterdir())
        scores = ", ".join(f"{task} {score}" for task, score in facts["scores"].items())
        print(f"{name}  {size / 1e6:.1f} MB, {facts['licence']}")
        print(f"  {facts['description']}")
        print(f"  dev scores (%): {scores}")
        print(f"  card: {FOLDER / name / 'README.md'}")


if __name__ == "__main__":
    from electra_tf import cli

    cli.run(main, FLAGS, __doc__)
