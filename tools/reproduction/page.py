"""Write the page of a grid's rows."""

import pathlib


def write(rows_folder: pathlib.Path, output: pathlib.Path) -> None:
    """Write the page."""
