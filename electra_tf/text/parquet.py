"""Read the columns of a Parquet file in batches."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from electra_tf.text.data_errors import DataErrorLog

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
        """Names of the columns; None: the file is broken."""
        try:
            self._schema = self._open(file).schema_arrow
            self.names = self._schema.names
        except self._errors as error:
            self._report(0, error)

    def batches(
        self, columns: Sequence[str], size: int, compact: Sequence[str] = ()
    ) -> Iterator[tuple[range, list["pyarrow.Array"]]]:
        """Yield the numbers of rows and their values by column.

        Equal texts of a page in `compact` columns take memory once, but more time.
        """
        number = 0
        try:
            table = self._open(self._file, read_dictionary=list(compact))
            for batch in table.iter_batches(size, columns=list(columns)):
                arrays = [batch.column(name) for name in columns]
                yield range(number + 1, number + 1 + len(batch)), arrays
                number += len(batch)
        except self._errors as error:
            self._report(number, error)

    def column(self, name: str) -> Iterator[tuple[int, Any]]:
        """Yield number and value of the rows of a column, one at a time in memory."""
        kind = str(self._schema.field(name).type)
        compact = [name] if kind in ("string", "large_string") else []
        for numbers, (array,) in self.batches([name], _FEW_ROWS, compact):
            for number, value in zip(numbers, array, strict=True):
                yield number, value.as_py()

    def _report(self, number: int, error: Exception) -> None:
        detail = f"{error}; the rows before it were read"
        self._log.add(self._path, number, "broken Parquet", detail)
