"""List the models that ship with this package: size, scores and licence.

Each name is accepted wherever a checkpoint is: electra-tf finetune --checkpoint=NAME
"""

from electra_tf import cli, preset_files

FLAGS = cli.Flags()


def main() -> None:
    """Print a paragraph for each preset."""
    if not preset_files.preset_names():
        print("no preset ships with this version")
    for name in preset_files.preset_names():
        facts, folder = preset_files.preset_facts(name), preset_files.FOLDER / name
        size = sum(path.stat().st_size for path in folder.iterdir())
        scores = ", ".join(f"{task} {score}" for task, score in facts["scores"].items())
        print(f"{name}  {size / 1e6:.1f} MB, {facts['licence']}")
        print(f"  {facts['description']}")
        print(f"  dev scores (%): {scores}")
        print(f"  card: {folder / 'README.md'}")


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
