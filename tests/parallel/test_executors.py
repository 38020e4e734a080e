"""Executors by name, and a Dask cluster behind the interface that its documentation names."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bayes_mdp.parallel.executors import check_executor, open_executor
from bayes_mdp.parallel.tasks import Task, run_tasks
from bayes_mdp.parallel.worker_processes import ProcessExecutor


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
    """`distributed` as documented: `Client(address, timeout=).get_executor(pure=)`, `LocalCluster(n_workers=, ...)`."""

    def __init__(self):
        self.asked = []
        self.pool = ThreadPoolExecutor(2)

    def client(self, cluster, timeout=None):
        """A client of a scheduler, which does not answer on port 1."""
        if cluster == "tcp://127.0.0.1:1":
            raise OSError("Timed out trying to connect to tcp://127.0.0.1:1 after 10 s")
        self.asked.append(("client", cluster))
        return nullcontext(SimpleNamespace(get_executor=self.get_executor))

    def get_executor(self, *, pure):
        """Its executor."""
        assert pure is False  # a task that is tried again must be computed again
        return self.pool

    def cluster(self, **options):
        """A cluster on this machine."""
        self.asked.append(("cluster", options["n_workers"], options["threads_per_worker"]))
        return nullcontext("local")


@pytest.fixture
def fake_dask(monkeypatch):
    fake, dask, distributed = FakeDask(), ModuleType("dask"), ModuleType("distributed")
    vars(dask)["config"] = SimpleNamespace(set=lambda options: nullcontext())
    vars(distributed).update(Client=fake.client, LocalCluster=fake.cluster)
    monkeypatch.setitem(sys.modules, "dask", dask)
    monkeypatch.setitem(sys.modules, "distributed", distributed)
    return fake


def _double(i):
    return 2 * i


def _values(executor):
    found: list[Any] = [one.value for one in run_tasks(_double, [Task(str(i), (i,)) for i in range(3)], executor)]
    return sorted(found)


def test_dask_by_name_and_address(fake_dask):
    assert _values("dask:3") == [0, 2, 4]
    assert fake_dask.asked == [("cluster", 3, 1), ("client", "local")]
    fake_dask.pool = ThreadPoolExecutor(2)
    assert _values("tcp://10.0.0.1:8786") == [0, 2, 4]
    assert fake_dask.asked[2:] == [("client", "tcp://10.0.0.1:8786")]
    fake_dask.pool = ThreadPoolExecutor(2)
    assert _values(SimpleNamespace(get_executor=fake_dask.get_executor)) == [0, 2, 4]


def test_a_scheduler_that_does_not_answer(fake_dask):
    with pytest.raises(ConnectionError, match=r"'tcp://127.0.0.1:1', where no Dask scheduler answered within 10 s"):
        _values("tcp://127.0.0.1:1")


def test_dask_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ImportError, match=r"pip install 'distributed>=.*the extra 'cluster'"):
        _values("dask")


def test_the_executor_of_the_caller_stays_open():
    with ThreadPoolExecutor(1) as pool:
        with open_executor(pool) as opened:
            assert opened.executor is pool and not opened.same_process
        assert pool.submit(_double, 2).result() == 4


def test_wrong_number_of_workers():
    with pytest.raises(ValueError, match="num_workers is 0"):
        ProcessExecutor(0)
    pool = ProcessExecutor(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(_double, 1)
