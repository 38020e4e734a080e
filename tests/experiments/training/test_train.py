"""`train`: checkpoints, bit-equal resume, signals, evaluation, refusals."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.agents.neural import DQN, MLP, Epsilon, QLearning
from bayes_mdp.envs import deep_sea_observed
from bayes_mdp.experiments import resume
from bayes_mdp.experiments.describe import fingerprint
from bayes_mdp.experiments.training import training_loop as memory
from bayes_mdp.experiments.training.train import CURVES, Log, _Plan
from bayes_mdp.experiments.training.training_loop import StepReport
from bayes_mdp.utils.files import read_json, write_json, write_with_checksum
from bayes_mdp.utils.layout import Facts
from tests.flips import refused_flips

AGENT = DQN(
    trunk=MLP((8,)),
    learning=QLearning(batch_size=4, learning_starts=8, target_every=5, learning_rate=1e-2),
    epsilon=Epsilon(steps=200),
)
ENV = deep_sea_observed(4, mapping_seed=None)
OPTIONS = bm.deep.TrainOptions(
    num_envs=2,
    replay_size=64,
    chunk=20,
    checkpoint_seconds=1e9,
    progress=False,
    evaluation=bm.deep.Evaluation(every=160, steps=32, num_envs=2, epsilon=0.5),
)


def _train(path: Path | None, num_steps: int = 480, **changed):
    options = changed.pop("options", OPTIONS)
    return bm.deep.train(changed.pop("agent", AGENT), ENV, num_steps=num_steps, num_seeds=2, path=path, options=options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    return path, _train(path)


def _same(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in leaves)


def test_a_training_reports_what_happened(whole):
    _, training = whole
    found = training.dataset
    assert training.finished and found.sizes == {"seed": 2, "checkpoint": 120, "episode": 120, "evaluation": 3} | {
        name: found.sizes[name] for name in ("frame", "row", "column")
    }
    assert found["step"].values[-1] == 480 and found["episode_step"].values[0, -1] == 480
    assert (found["episode_length"].values == 4).all() and set(np.unique(found["episode_score"])) <= {0.0, 1.0}
    assert found["visits"].sum(["frame", "row", "column"]).values.tolist() == [480, 480]
    per_row = found["visits"].sum(["frame", "column"]).values
    assert (per_row == 120).all(), "an episode visits every row once"
    assert (found["visits"].sum(["seed", "row", "column"]).values == 120).all(), "eight frames of equal length"
    assert found["evaluation_step"].values.tolist() == [160, 320, 480]
    assert (found["evaluation_episodes"].values == 8).all()
    assert np.isnan(found["loss"].values[:, 0]).all() and np.isfinite(found["loss"].values[:, -1]).all()
    assert {"configuration", "versions", "key"} <= set(found.attrs)
    values = training.values(jnp.zeros((3, 4, 4), jnp.uint8), seed=1)
    assert values.q.shape == (3, 2) and values.sd is None


def test_the_curves_on_the_disk_are_those_returned(whole):
    path, training = whole
    assert bm.load(path / CURVES).identical(training.dataset)
    assert [entry.name for entry in (path / "checkpoints").iterdir()] == ["240.npz"]


def test_a_training_that_goes_on_ends_bit_for_bit_as_one_that_did_not_stop(whole, tmp_path):
    _, once = whole
    first = _train(tmp_path / "run", 240)
    assert first.finished and first.dataset["step"].values[-1] == 240
    twice = _train(tmp_path / "run", 480)
    assert _same(twice.learner, once.learner)
    for name in ("episode_score", "episode_step", "evaluation_score"):
        np.testing.assert_array_equal(twice.dataset[name], once.dataset[name])
    assert twice.dataset["visits"].sum().item() == once.dataset["visits"].sum().item()
    both = [resume.load_checkpoint(p / "checkpoints", 240) for p in (whole[0], tmp_path / "run")]
    state = [name for name in both[0] if name.startswith(".")]
    assert any(name.startswith(".replay") for name in state) and any(name.startswith(".env_state") for name in state)
    for name in state:
        np.testing.assert_array_equal(both[0][name], both[1][name], err_msg=name)


def test_the_key_decides(whole):
    other = bm.deep.train(AGENT, ENV, num_steps=480, num_seeds=2, key=jax.random.key(1), options=OPTIONS)
    assert not _same(other.learner, whole[1].learner)


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_keeps_everything(number, tmp_path, monkeypatch):
    path = tmp_path / "run"
    many = 400_000
    added = Log.add

    def add(self, seen, first):
        added(self, seen, first)
        if first >= 4000:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Log, "add", add)
    long = bm.deep.TrainOptions(num_envs=2, replay_size=64, chunk=2000, checkpoint_seconds=1e9, progress=False)
    before = signal.getsignal(number)
    if number == signal.SIGTERM:
        assert not _train(path, many, options=long).finished
    else:
        with pytest.raises(KeyboardInterrupt):
            _train(path, many, options=long)
    assert signal.getsignal(number) == before
    assert [entry.name for entry in (path / "checkpoints").iterdir()] == ["6000.npz"]
    assert bm.load(path / CURVES)["step"].values[-1] == 12_000


def test_what_was_learnt_can_be_loaded_and_played(whole):
    path, training = whole
    loaded = bm.deep.load_training(path, AGENT, ENV)
    assert _same(loaded.learner, training.learner)
    how = bm.deep.Evaluation(every=1, steps=40, num_envs=2, epsilon=0.0)
    played = bm.deep.evaluate_agent(loaded, ENV, how=how)
    assert played["episodes"].values.tolist() == [10, 10]
    for seed in range(2):
        assert played["mean_score"].values[seed] == _greedy_score(training, seed), "no chance: each episode is the same"
    as_trained = bm.deep.evaluate_agent(
        loaded, ENV, how=bm.deep.Evaluation(every=1, steps=40, num_envs=2, epsilon=None)
    )
    assert as_trained["score"].shape == (2, 10)


def _greedy_score(training, seed: int) -> float:
    """The episode of the greedy policy, step by step."""
    state, seen = ENV.reset(jax.random.key(0))
    score = 0.0
    for _ in range(ENV.size):
        action = jnp.argmax(training.values(seen[None], seed).q[0])
        moved = ENV.step(jax.random.key(0), state, action)
        state, seen, score = moved.state, moved.observation, score + float(moved.score)
    return score


def test_a_folder_of_another_training_is_refused(whole):
    path, _ = whole
    with pytest.raises(ValueError, match=r"agent\.learning\.batch_size is 4 there and 5 here"):
        _train(path, agent=eqx.tree_at(lambda a: a.learning, AGENT, QLearning(batch_size=5)))
    with pytest.raises(ValueError, match=r"agent\.trunk\.widths is \[8\] there and \[9\] here"):
        bm.deep.load_training(path, DQN(trunk=MLP((9,)), learning=AGENT.learning, epsilon=AGENT.epsilon), ENV)
    with pytest.raises(FileNotFoundError, match="holds no training"):
        bm.deep.load_training(path / "nowhere", AGENT, ENV)


def test_a_checkpoint_of_another_architecture_is_refused(whole):
    arrays = resume.load_checkpoint(whole[0] / "checkpoints", 240)
    tree = {"q": jnp.zeros((3, 2)), "key": jax.random.key(0), "none": jnp.zeros(0)}
    saved = resume.arrays_by_name(tree)
    assert _same(jax.random.key_data(resume.fill(tree, saved, "here")["key"]), jax.random.key_data(tree["key"]))
    with pytest.raises(ValueError, match=r"here is a checkpoint of another architecture: \['q'\] is float32\[3, 2\]"):
        resume.fill(tree | {"q": jnp.zeros((4, 2))}, saved, "here")
    with pytest.raises(ValueError, match=r"\['q'\] is nothing there"):
        resume.fill(tree, {name: x for name, x in saved.items() if "q" not in name}, "here")
    assert len(arrays) > 10


def test_laws_in_a_state_are_kept_by_the_names_of_their_parameters(monkeypatch):
    """NumPyro has them in another order in every process; arrays of one shape would change places without a word."""
    tree = {"law": dist.StudentT(jnp.full(2, 5.0), jnp.full(2, 1.0), jnp.full(2, 3.0)), "q": jnp.zeros(2)}
    tree = jax.tree.map(jnp.asarray, tree)
    saved = resume.arrays_by_name(tree)
    assert {"['law'].df", "['law'].loc", "['law'].scale", "['q']"} <= set(saved)
    digest = fingerprint(tree)
    usual = dist.Distribution.gather_pytree_data_fields.__func__
    monkeypatch.setattr(dist.Distribution, "gather_pytree_data_fields", classmethod(lambda cls: usual(cls)[::-1]))
    law = resume.fill(jax.tree.map(jnp.zeros_like, tree), saved, "here")["law"]
    assert [float(x[0]) for x in (law.df, law.loc, law.scale)] == [5.0, 1.0, 3.0]
    assert fingerprint(tree) == digest


def test_a_writer_that_fails_leaves_the_checkpoint_before_it(tmp_path, monkeypatch):
    folder = tmp_path / "run" / "checkpoints"
    kept = resume.Checkpoints(tmp_path / "run", {"a": 1})
    kept.save(10, {"x": np.arange(3.0)})

    def broken(place, arrays):
        place.with_name(f".half.{place.name}").write_bytes(b"half")  # as a process leaves it that is killed
        raise OSError("No space left on device\nand more")

    with monkeypatch.context() as patch:
        patch.setattr(resume, "write_arrays", broken)
        with pytest.raises(OSError, match=r"not be written \(No space left on device\); that of iteration 10 stays"):
            kept.save(20, {"x": np.arange(4.0)})
    assert kept.newest() == 10 and len(list(folder.iterdir())) == 2
    again = resume.Checkpoints(tmp_path / "run", {"a": 1})
    assert [file.name for file in folder.iterdir()] == ["10.npz"], "the half one is gone"
    assert again.newest() == 10 and np.array_equal(again.load(10)["x"], np.arange(3.0))
    for number in (11, 12):
        again.save(number, {"x": np.arange(3.0)})
    assert sorted(resume.list_checkpoints(folder)) == [11, 12], "the newest two are kept"
    (folder / "11.npz").write_bytes((folder / "12.npz").read_bytes()[:-1])
    with pytest.raises(ValueError, match="expected a whole checkpoint"):
        again.load(11)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    """30 single bits of a checkpoint; a byte more; a file of another program."""
    kept, values = resume.Checkpoints(tmp_path, {"a": 1}), {"x": np.arange(30) / 7, "y": np.ones(3, np.int32)}
    kept.save(3, values | {"empty": np.zeros((0, 2))})
    same = lambda found: all(np.array_equal(found[name], values[name]) for name in values)  # noqa: E731
    assert same(kept.load(3)) and kept.load(3)["empty"].shape == (0, 2)
    file = tmp_path / "checkpoints" / "3.npz"
    assert refused_flips(file, lambda: kept.load(3), same, 30) == 30
    whole = file.read_bytes()
    for content in (whole + b"x", whole[:-1], b"", b"another"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="expected a whole checkpoint"):
            kept.load(3)
    write_with_checksum(file, lambda beside: beside.write_bytes(b"no zip"))
    with pytest.raises(ValueError, match="expected a whole checkpoint"):
        kept.load(3)


def test_the_folder_of_another_version_is_refused_in_one_sentence(whole, tmp_path):
    path, _ = whole
    old = tmp_path / "old"
    shutil.copytree(path, old)
    note = old / "configuration.json"
    kept = read_json(note, "it")
    write_json(note, {name: x for name, x in kept.items() if name != "num_seeds"})
    with pytest.raises(
        ValueError, match="holds the training of another version, without 'num_seeds' in its configuration"
    ):
        bm.deep.load_training(old, AGENT, ENV)
    note.write_text(json.dumps(kept))
    with pytest.raises(ValueError, match="whose checksum is missing or does not fit, expected what was trained there"):
        bm.deep.load_training(old, AGENT, ENV)
    with pytest.raises(ValueError, match="a file, expected a folder"):
        bm.deep.train(AGENT, ENV, num_steps=8, path=note)


def test_a_replay_larger_than_the_memory_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**30)
    with pytest.raises(
        ValueError, match=r"asks for 2\.4 GiB \(100,000,000 transitions, 1 seed\), expected at most the 1"
    ):
        bm.deep.train(AGENT, ENV, num_steps=10, options=bm.deep.TrainOptions(replay_size=10**8))


def test_a_reward_that_is_no_number_is_named():
    log = Log(2, 2, 10)
    score = np.zeros((2, 5, 2))
    score[1, 2, 1] = np.nan
    seen = StepReport(np.zeros((2, 5, 2), bool), score, np.ones((2, 5, 2), int), {})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"reward of environment 1 is nan at its step 9 \(seed 1\)"):
        log.add(seen, 7)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"agent": bm.agents.PSRL()}, TypeError, "agent is PSRL, expected a deep agent"),
        ({"env": 3}, TypeError, "env is int, expected an ObservedEnvironment"),
        ({"num_steps": 0}, ValueError, "num_steps is 0, expected an integer of at least 1"),
        ({"key": 3}, TypeError, "key is 3, expected a typed key"),
        (
            {"options": bm.deep.TrainOptions(device="gpu")},
            ValueError,
            "device is 'gpu', expected one that this JAX has",
        ),
    ],
)
def test_wrong_input(arguments, error, sentence):
    if "options" in arguments and jax.default_backend() != "cpu":
        pytest.skip("there is a GPU")
    given = {"agent": AGENT, "env": ENV, "num_steps": 8} | arguments
    with pytest.raises(error, match=sentence):
        bm.deep.train(given.pop("agent"), given.pop("env"), **given)


def test_wrong_options():
    with pytest.raises(ValueError, match="replay_size is 3, expected at least two transitions for each of 2"):
        bm.deep.TrainOptions(num_envs=2, replay_size=3)
    with pytest.raises(ValueError, match=r"evaluation\.epsilon is 2, expected a share"):
        bm.deep.Evaluation(every=1, steps=1, epsilon=2)


def test_chunks_end_where_evaluations_are_due():
    plan = _Plan(1000, 1, bm.deep.TrainOptions(num_envs=4, evaluation=bm.deep.Evaluation(every=100, steps=1), chunk=7))
    ends, done = [], 0
    while done < plan.num_iterations:
        done = plan.next_stop(done)
        ends.append(done)
    assert set(range(25, 251, 25)) <= set(ends) and ends[-1] == 250
    assert len(set(np.diff([0, *ends]))) == 1, "one length, one compilation"
    assert _Plan(10**6, 1, bm.deep.TrainOptions()).chunk == 1000 and _Plan(7, 1, bm.deep.TrainOptions()).chunk == 1


_KILLED = """
import sys
import bayes_mdp as bm
from tests.experiments.training.test_train import AGENT, ENV
options = bm.deep.TrainOptions(num_envs=2, replay_size=64, chunk=200, checkpoint_seconds=0.0, progress=False)
bm.deep.train(AGENT, ENV, num_steps=int(sys.argv[2]), num_seeds=2, path=sys.argv[1], options=options)
"""


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on(tmp_path):
    root = Path(__file__).parents[3]
    path = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(path), "4000000"], cwd=root)
    deadline = time.monotonic() + 120
    while len(resume.list_checkpoints(path / "checkpoints")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    reached = max(resume.list_checkpoints(path / "checkpoints"))
    steps = 2 * (reached + 200)
    options = bm.deep.TrainOptions(num_envs=2, replay_size=64, chunk=200, checkpoint_seconds=0.0, progress=False)
    resumed = _train(path, steps, options=options)
    once = _train(None, steps, options=options)
    assert _same(resumed.learner, once.learner)
    np.testing.assert_array_equal(resumed.dataset["episode_score"], once.dataset["episode_score"])
    assert json.loads(resumed.dataset.attrs["configuration"])["num_seeds"] == 2


def test_signals_are_left_alone_outside_the_main_thread():
    from bayes_mdp.experiments.training.train import StopSignals

    seen = []

    def work():
        with StopSignals() as stops:
            seen.append((stops.received, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    before = signal.getsignal(signal.SIGTERM)
    thread.start()
    thread.join()
    assert seen == [(None, before)]


def test_a_training_prints_what_it_was_and_no_weights(whole):
    _, training = whole
    text = str(training)
    assert text == repr(training) and text.startswith("Training of DQN, 2 seeds, finished\n")
    assert len(text) < 500 and "Array" not in text
    assert "environment steps of each seed 480" in " ".join(text.split())
    scores = training.dataset["episode_score"].values
    means = [row[np.isfinite(row)][-100:].mean() for row in scores]
    shown = sorted(f"{mean:.4g}" for mean in means)
    assert all(mean in text for mean in shown) and "last evaluation" in text
    assert "<table" in training._repr_html_()


def test_a_training_that_ended_no_episode_prints():
    (shown,) = [part for part in _train(None, 2).layout().parts if isinstance(part, Facts)]
    assert shown.entries["episodes that ended, by seed"] == "0"
