"""A configuration in TOML: the arguments of `sweep`, and one sentence for what is wrong."""

import jax
import pytest

from bayes_mdp.experiments.sweep_grid import KEYS, read_sweep_config
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit

LEAST = 'agents = ["psrl"]\nenvs = ["chain"]\n'


def _read(tmp_path, text):
    place = tmp_path / "sweep.toml"
    place.write_text(text)
    return read_sweep_config(place)


def test_every_entry(tmp_path):
    found = _read(
        tmp_path,
        """
        seed = 7
        horizon = 4
        num_episodes = 5
        num_seeds = 3
        num_blocks = 2
        regret = "average"
        executor = "processes:2"
        retries = 1
        options = {num_checkpoints = 10, method = "exact"}
        [agents.ube]
        scale = [0.1, 1.0]
        [envs]
        deep_sea = {size = [3, 4]}
        [priors]
        dirichlet_normal = {}
        """,
    )
    options = found.pop("options")
    assert (options.num_checkpoints, options.method) == (10, "exact")
    of_all_cells = {"num_blocks": 2, "regret": "average", "executor": "processes:2", "retries": 1}
    assert {name: getattr(options, name) for name in of_all_cells} == of_all_cells
    assert jax.random.key_data(found.pop("key")).tolist() == [0, 7]
    assert found == {
        "agents": {"ube": {"scale": [0.1, 1.0]}},
        "envs": {"deep_sea": {"size": [3, 4]}},
        "priors": {"dirichlet_normal": {}},
        "objective": Episodic(4),
        "num_episodes": 5,
        "num_seeds": 3,
    }
    assert found.keys() | of_all_cells.keys() | {
        "seed",
        "options",
        "horizon",
        "discount",
        "first_exit",
        "average_reward",
        "num_steps",
    } == {
        *KEYS,
        "objective",
    }


@pytest.mark.parametrize(
    ("line", "objective"),
    [
        ("", None),
        ("discount = 0.9", Discounted(0.9)),
        ("first_exit = true", FirstExit()),
        ("average_reward = true", AverageReward()),
    ],
)
def test_objectives(tmp_path, line, objective):
    assert _read(tmp_path, LEAST + line)["objective"] == objective


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LEAST + "num_seed = 3", "an entry of .*sweep.toml is 'num_seed', .* did you mean 'num_seeds'"),
        ('envs = ["chain"]', "has no entry 'agents'"),
        (LEAST + "horizon = 3\ndiscount = 0.9", "'horizon' and 'discount', expected one objective"),
        (LEAST + "first_exit = 1", "first_exit is 1, expected true"),
        (LEAST + "discount = 1.5", "discount"),
        (LEAST + 'seed = "x"', "seed is 'x'"),
        (LEAST + "seed = 4294967296", "seed is 4294967296"),
        (LEAST + "options = 3", "options is 3"),
        (LEAST + "options = {num_checkpoint = 3}", "did you mean 'num_checkpoints'"),
        (LEAST + 'options = {num_checkpoints = "x"}', "num_checkpoints is 'x'"),
        ("agents = [", "which is no TOML"),
    ],
)
def test_wrong_entries(tmp_path, text, says):
    with pytest.raises((ValueError, TypeError), match=says):
        _read(tmp_path, text)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_sweep_config(tmp_path / "no.toml")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="which is no TOML"):
        read_sweep_config(tmp_path / "x.toml")
