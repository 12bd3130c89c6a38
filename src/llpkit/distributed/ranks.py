"""Tasks that must run at the same time, one per worker, and talk to each other."""

import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from llpkit.errors import LLPError

_PAUSE = 1.0
"""Seconds between checks of the workers."""
_ATTEMPTS = 5
"""Maximum number of times that the ranks begin again."""
_PATIENCE = 60.0
"""Seconds to wait for a worker to come back."""


Log = Callable[[dict[str, Any]], None]
Work = Callable[..., Any]
"""``work(rank, task, share, load, scratch)``."""


class Ranks:
    """Runs work for every share at once, one per process; results are in order.

    This is a single rank, in this process; Dask's own scheduler, or Ray's, brings the data.
    """

    number = 1
    """How many ranks there are."""
    memory = float("inf")
    """Bytes that the smallest may use."""

    def run(self, work: Work, task: Any, shares: Sequence[Any]) -> list[Any]:
        """Run work in which the ranks do not need each other."""
        import xgboost as xgb

        def load(held: Any) -> Any:
            return held() if isinstance(held, partial) else held.compute()

        with xgb.config_context(verbosity=0):
            return [work(0, task, share, load, None) for share in shares]

    def run_joint(
        self,
        prepare: Work,  # noqa: ARG002
        work: Work,
        task: Any,
        shares: Sequence[Any],
    ) -> list[Any]:
        """Run work in which XGBoost connects the ranks.

        If one is lost, all run ``prepare`` and then ``work`` again. Only ``work`` is connected, so
        a rank may take its time to read again what the lost one had.
        """
        return self.run(work, task, shares)

    def each(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function once in every process."""
        function(*arguments)


class Workers(Ranks):
    """One rank per worker of a Dask cluster. If a worker dies, all ranks begin again.

    Args:
        client: The client.
        log: Called with the reason whenever they begin again.
    """

    def __init__(self, client: Any, log: Log) -> None:
        self.client, self.log = client, log
        known = self._known()
        if not known:
            raise LLPError("the Dask cluster has no workers; start some")
        self.number = len(known)
        self.memory = min(float(w["memory_limit"] or "inf") for w in known.values())

    def _known(self) -> dict[str, Any]:
        """What the scheduler knows about its workers; if busy, it may report only a few of them."""
        found: dict[str, Any] = {}
        for _ in range(20):
            found = self.client.scheduler_info(n_workers=-1)["workers"]
            if set(found) == set(self.client.nthreads()):
                break
            time.sleep(0.5)
        return found

    def _addresses(self) -> list[str]:
        """The workers by name, so that one that was restarted keeps its rank."""
        known = self._known()
        return sorted(known, key=lambda address: (str(known[address]["name"]), address))

    def run(self, work: Work, task: Any, shares: Sequence[Any]) -> list[Any]:
        """Run one rank per share, and again if a worker is lost."""
        return self._run((), work, task, shares, joint=False)

    def run_joint(self, prepare: Work, work: Work, task: Any, shares: Sequence[Any]) -> list[Any]:
        """Run one rank per share, all of them connected, and again if a worker is lost."""
        return self._run((prepare,), work, task, shares, joint=True)

    def _run(
        self, before: Sequence[Work], work: Work, task: Any, shares: Sequence[Any], *, joint: bool
    ) -> list[Any]:
        failure: BaseException | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                for each in before:
                    self.run(each, task, shares)
            found, failure = self._attempt(work, task, shares, self._wait(), joint)
            if found is not None:
                return found
            self.log({"step": "again", "reason": repr(failure)})
        raise LLPError(
            f"a step failed {_ATTEMPTS} times, the last time with {failure!r}; check the "
            "logs of the workers: too little memory is a common cause"
        ) from failure

    def each(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on every worker that is there."""
        self.client.run(function, *arguments, on_error="ignore")

    def _wait(self) -> list[str]:
        """As many workers as ranks."""
        end = time.monotonic() + _PATIENCE
        while len(found := self._addresses()) < self.number:
            if time.monotonic() > end:
                raise LLPError(
                    f"{len(found)} of {self.number} workers are left and none came back within "
                    f"{_PATIENCE:g} s; repeat the fit with those that are left"
                )
            time.sleep(0.2)
        return found[: self.number]

    def _lost(self, workers: Sequence[str]) -> bool:
        """Whether a worker is gone, after a second look."""
        for _ in range(3):
            if set(workers) <= set(self.client.nthreads()):
                return False
            time.sleep(0.5)
        return True

    def _check_started(self, workers: Sequence[str], futures: Sequence[Any]) -> None:
        """Refuse to wait for a worker that Dask has paused, as it will not start its rank.

        It would start once Dask has spilled enough, but most of its memory is not Dask's.
        """
        known, running = self._known(), self.client.call_stack(futures=list(futures))
        for worker, future in zip(workers, futures, strict=False):
            about = known.get(worker, {})
            started = future.done() or worker in running
            if about.get("status") == "paused" and not started:
                used = about["metrics"]["memory"] / 1e9
                raise LLPError(
                    f"worker {worker} has {used:.2f} of {about['memory_limit'] / 1e9:.2f} GB in "
                    "use, and Dask has paused it; use more workers, or give them more memory"
                )

    def _attempt(
        self, work: Work, task: Any, shares: Sequence[Any], workers: Sequence[str], joint: bool
    ) -> tuple[list[Any] | None, BaseException | None]:
        from distributed import wait
        from xgboost.core import XGBoostError
        from xgboost.tracker import RabitTracker

        # Published, because arguments of a task are all in memory until its end.
        name = f"llpkit-{uuid.uuid4().hex}"
        held = [[(i, _future(part)) for i, part in share] for share in shares]
        self.client.publish_dataset(held, name=name)
        address = tracker = None
        if joint:
            tracker = RabitTracker(len(shares), _own_address(self.client), sortby="task")
            tracker.start()
            address = tracker.worker_args()
        begin = time.monotonic()
        futures = [
            self.client.submit(
                _ranked, rank, work, task, name, address, workers=[worker], pure=False
            )
            for rank, worker in enumerate(workers[: len(shares)])
        ]
        try:
            while waiting := [future for future in futures if not future.done()]:
                if any(future.status == "error" for future in futures) or self._lost(workers):
                    return None, _failure(futures) or LLPError("a worker died")
                if time.monotonic() > begin + _PATIENCE:
                    begin = time.monotonic()
                    self._check_started(workers, futures)
                with contextlib.suppress(TimeoutError):
                    wait(waiting, timeout=_PAUSE, return_when="FIRST_COMPLETED")
            if (failure := _failure(futures)) is not None:
                return None, failure
            return self.client.gather(futures), None
        finally:
            # The other ranks notice the loss and end; their errors are of no interest.
            self.client.cancel(futures, force=True)
            self.client.unpublish_dataset(name)
            if tracker is not None:
                with contextlib.suppress(XGBoostError):
                    tracker.free()


def _failure(futures: Sequence[Any]) -> BaseException | None:
    failed = [future.exception() for future in futures if future.status == "error"]
    for error in failed:
        if isinstance(error, LLPError):
            raise error
    return failed[0] if failed else None


def _future(part: Any) -> Any:
    from distributed import futures_of

    return part if isinstance(part, partial) else futures_of(part)[0]


def _own_address(client: Any) -> str:
    """The address of this machine as the scheduler sees it."""
    url = urlsplit(client.scheduler.address)
    # Connecting a datagram socket sends nothing, but chooses the address of the route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((url.hostname or "127.0.0.1", url.port or 1))
        return str(probe.getsockname()[0])


def _ranked(rank: int, work: Work, task: Any, name: str, address: Any) -> Any:
    """One rank, on a worker; connected to the others if there is an address."""
    import xgboost as xgb
    from distributed import get_worker, worker_client

    with worker_client() as client:
        share = client.get_dataset(name)[rank]

        def load(part: Any) -> Any:
            return part() if isinstance(part, partial) else client.gather(part)

        connected: Any = contextlib.nullcontext()
        if address is not None:
            name = f"{rank:06d}"  # the tracker sorts tasks as text, so XGBoost's rank is this one
            connected = xgb.collective.CommunicatorContext(**address, dmlc_task_id=name)
        with xgb.config_context(verbosity=0), connected:
            return work(rank, task, share, load, get_worker().local_directory)
