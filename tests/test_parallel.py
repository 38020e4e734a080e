"""`run_tasks`: on worker processes as here, failures isolated and tried again, precision and versions kept."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp import parallel as home
from bayes_mdp.parallel import Task, check_executor, open_executor, run_tasks


def _work(i, folder):
    """Task 1 kills its process, 2 fails once, 3 always, 4 is refused, 5 exits; the others give numbers."""
    if i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if i == 2 and not (Path(folder) / "tried").exists():
        (Path(folder) / "tried").touch()
        raise OSError("for once")
    if i == 3:
        raise OSError("always")
    if i == 4:
        raise ValueError("i is 4, expected another")
    if i == 5:
        raise SystemExit(3)
    print("what a task prints is no answer")
    return {"x": jnp.linspace(0.0, 1.0, 5) ** i, "process": os.getpid()}


def _run(numbers, executor, folder, **options) -> dict[str, Any]:
    given = [Task(f"task {i}", (i, str(folder))) for i in numbers]
    return {one.name: one for one in run_tasks(_work, given, executor, **options)}


def _same(one, other):
    return one.dtype == other.dtype and np.array_equal(one, other)


def test_worker_processes(tmp_path):
    """Death, failure and refusal touch no other task; numbers are those of this process, at its precision."""
    found = _run(range(8), "processes:2", tmp_path, retries=1)
    here = _run((0, 6, 7), None, tmp_path)
    assert all(_same(found[name].value["x"], here[name].value["x"]) for name in here)
    assert found["task 0"].value["process"] != os.getpid() == here["task 0"].value["process"]
    assert "SIGKILL" in found["task 1"].error and found["task 1"].attempts == 2
    errors = [(one.error, one.attempts) for one in (found[f"task {i}"] for i in range(2, 6))]
    assert errors == [
        ("", 2),
        ("OSError: always", 2),
        ("i is 4, expected another", 1),
        ("SystemExit: 3", 2),
    ]
    with jax.enable_x64(True):
        (wide,) = _run([7], "processes:1", tmp_path).values()
        (expected,) = _run([7], None, tmp_path).values()
    assert wide.value["x"].dtype == np.float64 and _same(wide.value["x"], expected.value["x"])


def test_this_process(tmp_path):
    """The failing are tried after the others; a wrong argument is final."""
    order = list(_run([3, 2, 4, 5, 0], "serial", tmp_path, retries=2).items())
    assert [name for name, _ in order] == [f"task {i}" for i in (4, 0, 2, 3, 5)]
    assert [one.attempts for _, one in order] == [1, 1, 2, 3, 3]
    assert [one.value is None for _, one in order] == [True, False, False, True, True]


def test_one_function_for_all_tasks_of_a_worker():
    """What it has compiled serves the next task: it is read once."""
    home._load.cache_clear()
    with ThreadPoolExecutor(1) as pool:
        list(run_tasks(_double, [Task(str(i), (i,)) for i in range(5)], pool))
    assert home._load.cache_info().misses == 1


def _double(i):
    return 2 * i


def test_ctrl_c_goes_through():
    def interrupt(i):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_tasks(interrupt, [Task("a", (1,))]))


class Broken(Executor):
    """As a pool of processes after the death of one."""

    def submit(self, fn, /, *args, **kwargs):
        """A future that says so."""
        future = Future()
        future.set_exception(BrokenProcessPool("a process died"))
        return future


def test_executors_that_take_no_more():
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(ConnectionError, match="takes no more tasks"):
        list(run_tasks(_double, [Task("a", (1,))], closed))
    with pytest.raises(ConnectionError, match=r"the executor is broken .* expected 'processes'"):
        list(run_tasks(_double, [Task("a", (1,))], Broken()))


def test_what_cannot_be_sent():
    lock = threading.Lock()
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(TypeError, match=r"the function cannot be sent .*lock.*expected 'serial'"):
            list(run_tasks(lambda i: lock, [Task("a", (1,))], pool))
        with pytest.raises(TypeError, match="task a cannot be sent"):
            list(run_tasks(_double, [Task("a", (lock,))], pool))


def test_other_versions_are_refused(monkeypatch):
    there = home.current_settings()._replace(versions=(("python", "2.7.18"), *home.versions()[1:]))
    monkeypatch.setattr(home, "current_settings", lambda: there)
    with ThreadPoolExecutor(1) as pool:
        (one,) = run_tasks(_double, [Task("a", (1,))], pool)
    assert one.value is None and "other versions than the caller" in one.error and "expected 2.7.18" in one.error


@pytest.mark.slow
def test_a_pool_of_the_standard_library():
    with ProcessPoolExecutor(1, mp_context=__import__("multiprocessing").get_context("spawn")) as pool:
        found: list[Any] = [one.value for one in run_tasks(_double, [Task(str(i), (i,)) for i in range(3)], pool)]
    assert sorted(found) == [0, 2, 4]


@pytest.mark.slow
def test_loky_of_joblib():
    loky = pytest.importorskip("loky")
    with loky.ProcessPoolExecutor(2) as pool:
        found: list[Any] = [one.value for one in run_tasks(_double, [Task(str(i), (i,)) for i in range(3)], pool)]
    assert sorted(found) == [0, 2, 4]


@pytest.mark.slow
def test_dask(tmp_path):
    """A cluster of two processes on this machine: as here; a task that kills its worker fails alone."""
    pytest.importorskip("distributed")
    found = _run((0, 3, 4, 6, 7), "dask:2", tmp_path, retries=1)
    here = _run((0, 6, 7), None, tmp_path)
    assert all(_same(found[name].value["x"], here[name].value["x"]) for name in here)
    assert found["task 3"].error == "OSError: always" and found["task 4"].attempts == 1


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path):
    """A parent that is killed leaves no process behind, even one that computes."""
    import subprocess

    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from bayes_mdp.parallel import Task, run_tasks\n"
        "def work(i):\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "list(run_tasks(work, [Task('a', (1,))], 'processes:1'))\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    place = tmp_path / "pid"
    _until(lambda: place.exists() and place.read_text())
    parent.kill()
    parent.wait()
    _until(lambda: not _runs(int(place.read_text())))


def _until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def _runs(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("executor", [None, "serial", "processes", "processes:3", "dask:2", "tcp://127.0.0.1:8786"])
def test_names(executor, fake_dask):
    check_executor(executor)


@pytest.mark.parametrize("executor", ["dask", "dask:2", "tcp://127.0.0.1:8786"])
def test_dask_is_asked_for_before_anything_runs(executor, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=rf"executor is '{executor}', which needs Dask: pip install"):
        check_executor(executor)


@pytest.mark.parametrize(
    ("executor", "says"),
    [
        ("process", "did you mean 'processes'"),
        ("processes:0", "expected one of serial"),
        ("processes:two", "expected one of serial"),
        ("serial:2", "expected one of serial"),
        ("", "expected one of serial"),
        ("http:/x", "'http:/x', expected the address of a Dask scheduler, such as tcp://"),
        ("http://host:8786", "'http://host:8786', expected the address of a Dask scheduler, such as tcp://"),
        (3, "executor is 3, expected"),
        (ThreadPoolExecutor, "executor is the class ThreadPoolExecutor"),
    ],
)
def test_wrong_executors(executor, says):
    with pytest.raises((ValueError, TypeError), match=says):
        check_executor(executor)


class FakeDask:
    """`distributed` as documented: `Client(address, timeout=)` or `Client(n_workers=, ...)`, `.get_executor(pure=)`."""

    def __init__(self):
        self.asked = []
        self.pool = ThreadPoolExecutor(2)

    def client(self, address=None, timeout=None, **options):
        """A client of a scheduler, which does not answer on port 1, or of a new cluster on this machine."""
        if address == "tcp://127.0.0.1:1":
            raise OSError("Timed out trying to connect to tcp://127.0.0.1:1 after 10 s")
        self.asked.append(address or (options["n_workers"], options["threads_per_worker"]))
        return FakeClient(self.get_executor)

    def get_executor(self, *, pure):
        """Its executor."""
        assert pure is False  # a task that is tried again must be computed again
        return self.pool


class FakeClient(NamedTuple):
    """Of a cluster, in a `with` statement."""

    get_executor: Callable[..., Executor]

    def __enter__(self):
        """Itself."""
        return self

    def __exit__(self, *error):
        """Nothing is to be ended."""


@pytest.fixture
def fake_dask(monkeypatch):
    fake, dask, distributed = FakeDask(), ModuleType("dask"), ModuleType("distributed")
    vars(dask)["config"] = SimpleNamespace(set=lambda options: nullcontext())
    vars(distributed)["Client"] = fake.client
    monkeypatch.setitem(sys.modules, "dask", dask)
    monkeypatch.setitem(sys.modules, "distributed", distributed)
    return fake


def _values(executor):
    found: list[Any] = [one.value for one in run_tasks(_double, [Task(str(i), (i,)) for i in range(3)], executor)]
    return sorted(found)


def test_dask_by_name_and_address(fake_dask):
    assert _values("dask:3") == [0, 2, 4]
    assert fake_dask.asked == [(3, 1)]
    fake_dask.pool = ThreadPoolExecutor(2)
    assert _values("tcp://10.0.0.1:8786") == [0, 2, 4]
    assert fake_dask.asked[1:] == ["tcp://10.0.0.1:8786"]
    fake_dask.pool = ThreadPoolExecutor(2)
    assert _values(SimpleNamespace(get_executor=fake_dask.get_executor)) == [0, 2, 4]


def test_a_scheduler_that_does_not_answer(fake_dask):
    with pytest.raises(ConnectionError, match=r"'tcp://127.0.0.1:1', where no Dask scheduler answered within 10 s"):
        _values("tcp://127.0.0.1:1")


def test_dask_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'distributed>=.*the extra 'cluster'"):
        _values("dask")


def test_the_executor_of_the_caller_stays_open():
    with ThreadPoolExecutor(1) as pool:
        with open_executor(pool) as opened:
            assert opened is pool
        assert pool.submit(_double, 2).result() == 4
