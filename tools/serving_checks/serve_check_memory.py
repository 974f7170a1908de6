"""Memory of the server process: peaks while requests run, and a limit on it.

Neither needs privileges. Linux resets a process's peak (VmHWM) when 5 is written to its
`clear_refs`; where that is refused, resident memory is sampled. The limit is
RLIMIT_DATA, set from outside. It counts private writable memory. RLIMIT_AS would also
count address space that malloc reserves for each thread and never uses.
"""

import pathlib
import resource
import threading
from types import TracebackType

MIB = 2**20
_SAMPLE_SECONDS = 0.002


class ProcessMemory:
    """Memory of a process of this user, in MiB."""

    def __init__(self, pid: int):
        self._pid, self._folder = pid, pathlib.Path(f"/proc/{pid}")

    def read(self, field: str) -> float:
        """Return a field of the process's status; NaN on systems without /proc."""
        path = self._folder / "status"
        if not path.exists():
            return float("nan")
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        return float(lines.get(field, "nan").split()[0]) / 1024

    def reset_peak(self) -> bool:
        """Set the peak to the memory of now, and return whether that worked."""
        try:
            (self._folder / "clear_refs").write_text("5")
        except OSError:
            return False
        # Some sandboxes accept the write without effect.
        return self.read("VmHWM") < 1.05 * self.read("VmRSS") + 1

    def limit(self, growth: float) -> None:
        """Let allocations fail that add more than `growth` MiB of private memory."""
        size = int((self.read("VmData") + growth) * MIB)
        hard = resource.prlimit(self._pid, resource.RLIMIT_DATA)[1]
        resource.prlimit(self._pid, resource.RLIMIT_DATA, (size, hard))


class Peak:
    """Context in which the peak of a process's resident memory is measured."""

    def __init__(self, memory: ProcessMemory):
        self._memory, self._samples = memory, []
        self._stop, self._sampler = threading.Event(), None
        self.mib = float("nan")
        """The peak, after the context."""

    def __enter__(self) -> "Peak":
        if not self._memory.reset_peak():
            self._sampler = threading.Thread(target=self._sample)
            self._sampler.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._sampler:
            self._sampler.join()
            self.mib = max(self._samples)
        else:
            self.mib = self._memory.read("VmHWM")

    def _sample(self) -> None:
        while True:
            self._samples.append(self._memory.read("VmRSS"))
            if self._stop.wait(_SAMPLE_SECONDS):
                return
