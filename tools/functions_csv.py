"""Write functions.csv: sentences that describe functions, and the functions' packages.

They come from the docstrings of four packages that are installed with electra_tf.
"""

import ast
import csv
import importlib.util
import pathlib
import random

rows = set()
for package in ("keras", "numpy", "scipy", "sklearn"):
    folder = pathlib.Path(importlib.util.find_spec(package).origin).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("test"):
                paragraph = (ast.get_docstring(node) or "").split("\n\n")[0]
                sentence = " ".join(paragraph.split()).split(". ")[0]
                if 5 <= len(sentence.split()) <= 30:
                    rows.add((sentence, package))

chosen = random.Random(0).sample(sorted(rows), 2000)
with open("functions.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("sentence", "package"), *chosen])
print(f"functions.csv: 2,000 of {len(rows):,} sentences")
