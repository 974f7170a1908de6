"""Compute requests of several clients together.

While a thread computes, requests wait; those that fit together are the next batch. A
single client therefore never waits for others to fill a batch.
"""

import asyncio
import collections
import dataclasses
import functools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures

import numpy as np
import tensorflow as tf

from electra_tf.serving.http_json import RequestError
from electra_tf.serving.http_servable import Arrays, ServableSignature

_logger = logging.getLogger(__name__)
_MAX_BYTES = 2**15
"""Rows of a batch of strings times bytes of the longest row, because a short text in a
batch is computed with the length of the longest."""
_CLIENT_ERRORS = (
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.OutOfRangeError,
)


@dataclasses.dataclass(frozen=True, eq=False)
class _Waiting:
    """Request that waits to be computed."""

    signature: ServableSignature
    arrays: Arrays
    encode: Callable[[Arrays], bytes]
    result: "asyncio.Future[bytes]"

    @functools.cached_property
    def rows(self) -> int:
        """Rows; 0 if the inputs have different numbers of them."""
        counts = {array.shape[:1] for array in self.arrays.values()}
        return sum(counts.pop()) if len(counts) == 1 else 0

    @functools.cached_property
    def longest(self) -> int:
        """Bytes of the longest row of strings; 0 for numbers."""
        texts = [a.ravel() for a in self.arrays.values() if a.dtype == object]
        return max((sum(map(len, row)) for row in zip(*texts, strict=False)), default=0)

    def fits(self, others: Sequence["_Waiting"], max_rows: int) -> bool:
        """Return whether the request can be computed with others."""
        for other in others[:1]:
            # Outputs for ids have the client's padding, which `_rows` would remove.
            signature = self.signature
            if signature is not other.signature or (
                signature.padded and not signature.takes_texts
            ):
                return False
            shapes = [
                {name: array.shape[1:] for name, array in request.arrays.items()}
                for request in (self, other)
            ]
            if shapes[0] != shapes[1] or not (self.rows and other.rows):
                return False
        together = [*others, self]
        rows = sum(request.rows for request in together)
        longest = max(request.longest for request in together)
        return rows <= max_rows and rows * longest <= _MAX_BYTES


class Batcher:
    """Queue of requests and threads, each of which computes one batch at a time.

    `max_rows` bounds a batch of several requests; `on_batch` is called with the number
    of requests of each batch.
    """

    def __init__(
        self,
        signatures: Mapping[str, ServableSignature],
        threads: int,
        max_rows: int,
        on_batch: Callable[[int], None],
    ):
        self._signatures, self._max_rows = signatures, max_rows
        self._threads, self._on_batch = threads, on_batch
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._pool = futures.ThreadPoolExecutor(threads, "predict")
        self._working = 0
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio keeps no reference

    async def predict(
        self, signature: str, arrays: Arrays, encode: Callable[[Arrays], bytes]
    ) -> bytes:
        """Return the outputs of a request, which `encode` converts in a thread.

        Raises:
            RequestError: The function or `encode` refused the request.
        """
        result = asyncio.get_running_loop().create_future()
        function = self._signatures[signature]
        self._waiting.append(_Waiting(function, arrays, encode, result))
        if self._working < self._threads:
            self._working += 1
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await result

    def close(self) -> None:
        """Stop the threads after their current batches."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        """Compute batches until no request waits."""
        loop = asyncio.get_running_loop()
        while batch := self._take():
            self._on_batch(len(batch))
            results = await loop.run_in_executor(self._pool, _compute, batch)
            for request, result in zip(batch, results, strict=True):
                if request.result.done():  # the client has gone
                    continue
                if isinstance(result, RequestError):
                    request.result.set_exception(result)
                else:
                    request.result.set_result(result)
        # At once: a request that comes before this task is done needs another one.
        self._working -= 1

    def _take(self) -> list[_Waiting]:
        """Remove the first request from the queue, and those that fit to it."""
        waiting = [item for item in self._waiting if not item.result.done()]
        batch: list[_Waiting] = waiting[:1]
        for request in waiting[1:]:
            if request.fits(batch, self._max_rows):
                batch.append(request)
        self._waiting = collections.deque(r for r in waiting if r not in batch)
        return batch


def _compute(batch: Sequence[_Waiting]) -> list[bytes | RequestError]:
    """Return the response or the error of each request of a batch."""
    if len(batch) == 1:
        return [_compute_one(*batch)]
    signature = batch[0].signature
    try:
        arrays = {
            name: np.concatenate([request.arrays[name] for request in batch])
            for name in signature.inputs
        }
        outputs = signature(arrays)
        ends = np.cumsum([request.rows for request in batch])
        return [
            request.encode(_rows(signature, outputs, end - request.rows, end))
            for request, end in zip(batch, ends, strict=True)
        ]
    except Exception:  # perhaps because of one of them
        return [_compute_one(request) for request in batch]


def _rows(
    signature: ServableSignature, outputs: Arrays, begin: int, end: int
) -> dict[str, np.ndarray]:
    """Return rows of outputs, without the padding up to the longest of other rows.

    Outputs of one length belong together. A position is padding if all of them are
    empty, 0, or -1 for integers there.
    """
    rows = {name: array[begin:end] for name, array in outputs.items()}
    used: dict[int, int] = {}
    for name in signature.padded:
        array = rows[name]
        padding = b"" if array.dtype == object else -1 * (array.dtype.kind == "i")
        positions = np.nonzero(array != padding)[1]
        length = array.shape[1]
        used[length] = max(used.get(length, 0), 1 + positions.max(initial=-1))
    for name in signature.padded:
        rows[name] = rows[name][:, : used[rows[name].shape[1]]]
    return rows


def _compute_one(request: _Waiting) -> bytes | RequestError:
    try:
        return request.encode(request.signature(request.arrays))
    except RequestError as error:
        return error
    except _CLIENT_ERRORS as error:
        return RequestError(_message(error))
    except (tf.errors.ResourceExhaustedError, MemoryError):
        _logger.exception("out of memory")
        return RequestError("Out of memory. Send a smaller request", 503)
    except Exception:
        _logger.exception("a request failed")
        return RequestError("Internal error; the server's log has the reason", 500)


def _message(error: tf.errors.OpError) -> str:
    """Return the message of an error without lines of the code and paths."""
    text = error.message.split("[[{{node")[0].strip().split("\n\n")[-1]
    _, failed, parts = text.partition("assertion failed: ")
    # Values of tensors keep their brackets.
    return re.sub(r"\[([A-Z][^]]*)\]", r"\1", parts) if failed else text
