"""Read the columns of a Parquet file in batches."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from electra_tf.errors import InputError
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.delimited import distinct_names

if TYPE_CHECKING:  # pyarrow takes a third of a second
    import pyarrow

_FEW_ROWS = 256  # a row may be a whole book


class ParquetReader:
    """Columns of an open Parquet file.

    What is broken, to the end of the file, is logged. The numbers of rows begin at 1.
    """

    def __init__(self, file: BinaryIO, path: str, log: DataErrorLog):
        import pyarrow.parquet

        self._open = pyarrow.parquet.ParquetFile
        # Arrow raises OSError for a page that cannot be decoded.
        self._errors = (pyarrow.ArrowException, OSError)
        self._file, self._path, self._log = file, path, log
        self.names: list[str] | None = None
        """Names of the columns, as in a .csv; None: the file is broken."""
        try:
            self._schema = self._open(file).schema_arrow
            self.names = distinct_names(self._schema.names)
        except self._errors as error:
            self._report(0, error)

    def batches(
        self, columns: Sequence[str], size: int, compact: Sequence[str] = ()
    ) -> Iterator[tuple[range, list["pyarrow.Array"]]]:
        """Yield the numbers of rows and their values by column.

        Equal texts of a page in `compact` columns take memory once, but more time.
        """
        number, places = 0, [self.names.index(name) for name in columns]
        # Arrow reads all columns of a name.
        stored = [self._schema.names[place] for place in places]
        ranks = [
            self._schema.names[:place].count(name)
            for place, name in zip(places, stored, strict=True)
        ]
        try:
            table = self._open(self._file, read_dictionary=list(compact))
            for batch in table.iter_batches(size, columns=list(dict.fromkeys(stored))):
                arrays = [
                    batch.column(batch.schema.get_all_field_indices(name)[rank])
                    for name, rank in zip(stored, ranks, strict=True)
                ]
                yield range(number + 1, number + 1 + len(batch)), arrays
                number += len(batch)
        except self._errors as error:
            self._report(number, error)

    def column(self, name: str) -> Iterator[tuple[int, Any]]:
        """Yield number and value of the rows of a column, one at a time in memory."""
        kind = str(self._schema.field(self.names.index(name)).type)
        compact = [name] if kind in ("string", "large_string") else []
        for numbers, (array,) in self.batches([name], _FEW_ROWS, compact):
            for number, value in zip(numbers, array, strict=True):
                yield number, value.as_py()

    def _report(self, number: int, error: Exception) -> None:
        detail = f"{error}; the rows before it were read"
        self._log.add(self._path, number, "broken Parquet", detail)


def to_values(values: "pyarrow.Array", name: str) -> list[Any]:
    """Return a column's values; bytes of UTF-8 and what Python cannot hold as texts."""
    import pyarrow
    from pyarrow import types

    kind = values.type
    inner = kind.value_type if types.is_list(kind) else kind
    if types.is_binary(inner) or types.is_large_binary(inner):
        text = pyarrow.large_string()
        with contextlib.suppress(pyarrow.ArrowException):
            return values.cast(
                text if inner is kind else pyarrow.list_(text)
            ).to_pylist()
    try:
        return values.to_pylist()
    except (ValueError, OverflowError, KeyError):  # nanoseconds, far years, zones
        pass
    try:
        if types.is_timestamp(kind):
            values = values.cast(pyarrow.timestamp(kind.unit))
        return values.cast(pyarrow.string()).to_pylist()
    except pyarrow.ArrowException as error:
        raise InputError(
            f"The column {name!r} must have values of JSON, and has {kind}: {error}; "
            "write the file without it"
        ) from error
