"""What is free, and what does not fit in it."""

from itertools import count

import pytest

from bayes_mdp.utils import memory


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 8 GiB free; no control group."""
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "cgroup")
    memory._free_at.cache_clear()
    monkeypatch.setattr(memory.time, "monotonic", count(1.0).__next__)
    write(tmp_path, meminfo="MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n")
    return tmp_path


def test_the_system_is_asked_ten_times_a_second(system, monkeypatch):
    monkeypatch.setattr(memory.time, "monotonic", iter([7.01, 7.09, 7.11]).__next__)
    assert memory.free_bytes() == 8 * 2**30
    write(system, meminfo="MemAvailable:    1024 kB\n")
    assert [memory.free_bytes(), memory.free_bytes()] == [8 * 2**30, 2**20]


def test_half_of_what_the_system_has_free(system):
    assert memory.free_bytes() == 8 * 2**30
    assert memory.memory_limit() == 4 * 2**30


@pytest.mark.parametrize("place", ["cgroup", "cgroup/job/7"])
def test_a_control_group_may_leave_less(system, place):
    write(system, own="0::/job/7\n")
    write(
        system / place, memory__max="3221225472\n", memory__current="2147483648\n", memory__stat="inactive_file 4096\n"
    )
    assert memory.free_bytes() == 2**30 + 4096


def test_a_control_group_of_the_first_version(system):
    write(system, own="5:memory:/job\n4:cpu:/job\n")
    write(system / "cgroup/memory/job", memory__limit_in_bytes="2147483648\n", memory__usage_in_bytes="1073741824\n")
    assert memory.free_bytes() == 2**30


def test_a_group_without_a_limit_leaves_all(system):
    write(system / "cgroup", memory__max="max\n", memory__current="1\n")
    assert memory.free_bytes() == 8 * 2**30


def test_a_system_that_does_not_say(system):
    (system / "meminfo").unlink()
    assert memory.free_bytes() > 2**20


def test_what_does_not_fit_is_refused_with_both_numbers(system):
    memory.check_memory("num_draws is 10", 4 * 2**30, "fewer draws take less")
    with pytest.raises(
        ValueError, match=r"^num_draws is 11, about 4\.5 GiB of memory, expected at most 4 GiB \(half of "
    ):
        memory.check_memory("num_draws is 11", 4.5 * 2**30, "fewer draws take less")
    (system / "meminfo").write_text("MemAvailable: 1 kB\n")
    memory.check_memory("num_draws is 10", 2**20)  # less than anybody would notice
    with pytest.raises(ValueError, match=r"expected at most 0\.0\d* MiB"):
        memory.check_memory("num_draws is 10", 2**20 + 1)
    assert memory.in_words(2**19) == "0.5 MiB" and memory.in_words(float("inf")) == "over a million GiB"
