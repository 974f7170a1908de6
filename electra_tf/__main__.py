"""List the commands, or run one: `electra-tf pretrain --config=tiny ...`.

`python -m electra_tf pretrain` and `python -m electra_tf.pretrain` are equivalent.
"""

import ast
import difflib
import importlib
import pathlib
import sys

COMMANDS = (
    "build_vocab",
    "build_records",
    "pretrain",
    "evaluate",
    "finetune",
    "predict",
    "score",
    "export",
    "convert",
    "presets",
    "serve",
)


_PAGES = "Pages that messages name are in the folder docs of the source."
# The command that gives a model of one's own in a minute, without a download.
_START = """\
Start here: a classifier from a table with the columns text and label.
electra-tf finetune --checkpoint=electra_wiki_en --task=csv \\
    --data=table.csv --text_columns=text --label_column=label --output=model
echo 'some text' | electra-tf predict --model=model"""


def main() -> None:
    """Run the command named by the first argument, or list all commands."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("--help", "-help", "-h", "help"):
        width = max(map(len, COMMANDS))
        lines = [f"  {name:{width}}  {_first_line(name)}" for name in COMMANDS]
        print("Usage: electra-tf COMMAND --flag=value ...", "", *lines, sep="\n")
        print(f"\nelectra-tf COMMAND --help lists the flags.\n{_PAGES}\n\n{_START}")
        return
    if name not in COMMANDS:
        near = difflib.get_close_matches(name.replace("-", "_"), COMMANDS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Use {', '.join(COMMANDS)}."
        print(f"error: {name!r} is no command. {hint}", file=sys.stderr)
        sys.exit(2)
    from electra_tf import cli

    module = importlib.import_module(f"electra_tf.{name}")
    sys.argv = [f"electra-tf {name}", *rest]
    cli.run(module.main, module.FLAGS, module.__doc__)


def _first_line(name: str) -> str:
    """Return the first line of a command's docstring, without importing it."""
    source = pathlib.Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").split("\n")[0]


if __name__ == "__main__":
    main()
