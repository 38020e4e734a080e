"""Pictures of environments: what stands on them, read back from the figure."""

from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

import bayes_mdp as bm
from bayes_mdp.envs import ENVS, chain, deep_sea, garnet, osband_chain, prior_mdp, riverswim, two_action_chain
from bayes_mdp.envs import wide_narrow as wide
from bayes_mdp.experiments.plots import plot_environment
from bayes_mdp.mdp import MDP, Environment, NormalReward, Picture, SparseMDP
from bayes_mdp.plots import plot_env, plot_trajectory

SMALLER: dict[str, Any] = {"two_action_chain": {"depth": 6}, "deep_sea": {"size": 4}}
MAP = ("#####", "#S.F#", "#Sx.#", "#####")


class Simulated:
    """A `SimulatedEnvironment` with a map."""

    name, n_actions, num_codes = "by hand", 4, 99

    def __init__(self, picture):
        self.picture = picture

    def reset(self, key) -> Any:
        return 0

    def step(self, key, state, action) -> Any:
        return 0, 0.0, False

    def code(self, state) -> Any:
        return 0


def parts(axes, kind) -> Any:
    return [patch for patch in axes.patches if isinstance(patch, kind)]


def texts(axes):
    return sorted(text.get_text() for text in axes.texts)


def possible(mdp):
    """{(state, action, next state or S)} of legal actions, by loops over dense rows."""
    dense = mdp.to_dense() if isinstance(mdp, SparseMDP) else mdp
    rows = np.asarray(dense.transition_probs)
    ends = np.zeros(rows.shape[:2]) if dense.end_probs is None else np.asarray(dense.end_probs)
    table = np.concatenate([rows, ends[..., None]], -1)
    return {
        (s, a, z)
        for s, a, z in np.ndindex(table.shape)
        if table[s, a, z] > 0 and (mdp.legal is None or mdp.legal[s, a])
    }


def drawn(axes, n_actions):
    """[(state, action, next state or S)] of the arrows, read from where they start and end and from their colour."""
    circles = np.array([circle.center for circle in parts(axes, Circle)])
    squares = np.array([s.get_center() for s in parts(axes, Rectangle)]).reshape(-1, 2)
    nodes = np.concatenate([circles, squares])
    colors = [to_hex(color) for color in plot_environment.colors_of(n_actions)]
    found = []
    for arrow in parts(axes, FancyArrowPatch):
        path: Any = arrow._path_original
        first, last = (int(np.argmin(np.linalg.norm(nodes - path.vertices[end], axis=-1))) for end in (0, -1))
        found.append((first, colors.index(to_hex(arrow.get_edgecolor())), min(last, len(circles))))
    return found


GRAPHS = {
    "riverswim": riverswim,
    "chain": chain,
    "wide": lambda: wide(6, 2),
    "listed": lambda: osband_chain(5, stochastic=True),
    "ends": lambda: two_action_chain(4),
    "prior": prior_mdp,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_an_arrow_for_each_possible_transition_of_a_legal_action(name):
    env: Any = GRAPHS[name]()
    axes: Any = plot_env(env).axes[0]
    found = drawn(axes, env.mdp.n_actions)
    assert len(found) == len(set(found))
    assert set(found) == possible(env.mdp)
    assert len(parts(axes, Circle)) == env.mdp.n_states


@pytest.mark.parametrize("name", GRAPHS)
def test_no_arrow_hides_another(name):
    axes: Any = plot_env(GRAPHS[name]()).axes[0]
    points = [arrow._path_original.vertices for arrow in parts(axes, FancyArrowPatch)]
    middles = np.array([p.T @ [1 / 8, 3 / 8, 3 / 8, 1 / 8] for p in points])
    quarters = np.array([p.T @ [27 / 64, 27 / 64, 9 / 64, 1 / 64] for p in points])
    apart = np.maximum(*(np.linalg.norm(x[:, None] - x, axis=-1) for x in (middles, quarters)))
    assert apart[~np.eye(len(points), dtype=bool)].min() > 0.04


def test_riverswim_tells_what_a_student_needs():
    axes: Any = plot_env(riverswim(), actions=("left", "right")).axes[0]
    numbers = ["0.7", "0.3", *["0.1", "0.6", "0.3"] * 4, "0.7", "0.3"]
    assert texts(axes) == sorted([*"012345", "+5", "+3000", *numbers])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["left", "right", "first state"]
    assert [circle.center for circle in parts(axes, Circle)] == [(float(x), 0.0) for x in range(6)]
    assert [circle.get_linewidth() > 2 for circle in parts(axes, Circle)] == [False, True, True, False, False, False]
    arrows = {t: arrow for t, arrow in zip(drawn(axes, 2), parts(axes, FancyArrowPatch), strict=True)}
    rare, often = arrows[1, 1, 0], arrows[1, 1, 1]
    assert rare.get_linewidth() < often.get_linewidth() < arrows[1, 0, 0].get_linewidth()
    right, left = (arrows[key]._path_original.vertices[1:3, 1] for key in ((2, 1, 3), (3, 0, 2)))
    assert (right < 0).all() and (left > 0).all()  # above, below: y is downwards
    assert axes.yaxis_inverted()


def test_without_positions_states_stand_in_a_ring_clockwise_from_the_top():
    axes: Any = plot_env(garnet(4, 1, 1)).axes[0]
    radius = 2.4 / np.sqrt(2)
    expected = radius * np.array([[0, -1], [1, 0], [0, 1], [-1, 0]])
    np.testing.assert_allclose([circle.center for circle in parts(axes, Circle)], expected, atol=1e-6)


def test_rewards_of_illegal_actions_are_not_written():
    assert texts(plot_env(wide(3, 1, mean_low=0.2)).axes[0]) == sorted([*"012", "+0.5", *["+0.2"] * 3])


def test_ends_are_squares_with_arrows():
    axes: Any = plot_env(two_action_chain(4)).axes[0]
    assert len(parts(axes, Rectangle)) == 2
    assert "end of the episode" in [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts(axes) == sorted([*"0123", "+1"])


def test_all_steps_are_rows_of_what_can_be_reached():
    axes: Any = plot_env(deep_sea(4)).axes[0]
    places = [(int(x), int(y)) for x, y in (circle.center for circle in parts(axes, Circle))]
    assert places == [(x, h) for h in range(4) for x in range(h + 1)]
    assert len(parts(axes, Rectangle)) == 4 and len(parts(axes, FancyArrowPatch)) == 20
    assert axes.get_ylabel() == "step"
    assert texts(axes).count("+0.998") == 1


def test_one_step_alone():
    env = deep_sea(4)
    axes: Any = plot_env(env, step=3).axes[0]
    assert set(drawn(axes, 2)) == possible(env.mdp.at(3))
    assert "+0.998" in texts(axes)
    assert "+0.998" not in texts(plot_env(env, step=0).axes[0])


def test_many_states_are_dots_and_lines(monkeypatch):
    env = garnet(40, 2, 3)
    axes: Any = plot_env(env).axes[0]
    lines, dots = axes.collections[:2]
    assert not axes.texts and not axes.patches
    assert len(lines.get_segments()) == 40 * 2 * 3 and len(dots.get_offsets()) == 40
    monkeypatch.setattr(plot_environment, "MOST_LINES", 100)
    axes = plot_env(env).axes[0]
    assert len(axes.collections[0].get_segments()) == 100
    assert axes.get_title() == "garnet_40_2_3_seed_0: the 100 most probable of 240 transitions"


def test_circles_are_measured_by_the_distance_of_the_states():
    env = prior_mdp(0, 3)
    picture = Picture(((0.0, 0.0), (300.0, 0.0), (0.0, 100.0)))
    axes: Any = plot_env(Environment(env.mdp, env.reward_law, picture=picture)).axes[0]
    assert [circle.radius for circle in parts(axes, Circle)] == pytest.approx([27.0] * 3)
    assert set(drawn(axes, 2)) == possible(env.mdp)


def on_a_map(**options):
    """States 0 .. 5 on the free cells of MAP, one way through them and back to state 0 from the gray cell 4."""
    spots = ((1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (1.0, 2.0), (2.0, 2.0), (3.0, 2.0))
    successor = np.array([1, 2, 5, 4, 0, 5])[:, None, None]
    mdp = SparseMDP(successor, np.ones((6, 1, 1)), np.zeros((6, 1)), initial=np.eye(6)[0])
    return Environment(mdp, NormalReward(mdp.reward), name="map", picture=Picture(spots, MAP), **options)


@pytest.fixture
def no_dense(monkeypatch):
    def refuse(self):
        raise AssertionError("a dense row was made")

    monkeypatch.setattr(SparseMDP, "to_dense", refuse)


@pytest.mark.parametrize("make", [on_a_map, lambda: Simulated(Picture((), MAP))])
def test_a_map_has_its_cells_and_letters(make, no_dense):
    axes: Any = plot_env(make()).axes[0]
    image = axes.images[0]
    shown = image.cmap(image.norm(image.get_array()))
    assert shown.shape[:2] == (4, 5)
    for kind in "#S.Fx":
        mask = np.array([list(line) for line in MAP]) == kind
        assert len(np.unique(shown[mask], axis=0)) == 1
    assert len(np.unique(shown.reshape(-1, 4), axis=0)) == 5
    assert {(t.get_text(), t.get_position()) for t in axes.texts} == {("S", (1, 1)), ("S", (1, 2)), ("F", (3, 1))}
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["wall", "gray (penalty)", "free", "start", "finish"]


def test_lines_of_a_map_may_differ_in_length_and_hold_other_letters():
    axes: Any = plot_env(Simulated(Picture((), ("#A", "#..B")))).axes[0]
    assert axes.images[0].get_array().shape == (2, 4)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["wall", "free", "A", "B"]


def path_of(axes):
    return np.asarray(next(c for c in axes.collections if c.get_label() == "path").get_offsets())


def jumps_of(axes):
    return [s.tolist() for s in next(c for c in axes.collections if c.get_label() == "jumps").get_segments()]


def test_a_trajectory_on_a_map(no_dense):
    axes: Any = plot_trajectory(on_a_map(), [0, 1, 2, 5, 3, 4, 0, 0]).axes[0]
    spots = [(1, 1), (2, 1), (3, 1), (3, 2), (1, 2), (2, 2), (1, 1), (1, 1)]
    np.testing.assert_array_equal(path_of(axes), spots)
    # 5 -> 3 and 0 -> 0 are impossible; 4 -> 0 is possible and near
    assert jumps_of(axes) == [[[3, 2], [1, 2]], [[1, 1], [1, 1]]]
    assert [text.get_text() for text in axes.get_legend().get_texts()][-3:] == ["path starts", "path ends", "jump"]
    arrows = next(c for c in axes.collections if hasattr(c, "U"))
    np.testing.assert_array_equal(np.stack([arrows.U, arrows.V], -1), [[1, 0], [1, 0], [0, 1], [1, 0], [-1, -1]])


def test_positions_on_a_map_jump_to_a_start_from_far_away():
    far = [(1, 1), (2, 1), (3, 2), (1, 2), (1, 1)]
    for env in (Simulated(Picture((), MAP)), on_a_map()):
        axes: Any = plot_trajectory(env, far).axes[0]
        np.testing.assert_array_equal(path_of(axes), far)
        assert jumps_of(axes) == [[[3, 2], [1, 2]]]
        assert jumps_of(plot_trajectory(env, far, longest=1.1).axes[0]) == [[[2, 1], [3, 2]], [[3, 2], [1, 2]]]


def test_a_trajectory_over_time():
    env = riverswim()
    axes: Any = plot_trajectory(env, [1, 2, 3, 3, 0, 1], names="abcdef").axes[0]
    line = next(line for line in axes.lines if line.get_label() == "path")
    np.testing.assert_array_equal(line.get_xydata(), list(enumerate([1, 2, 3, 3, 0, 1])))
    assert jumps_of(axes) == [[[3, 3], [4, 0]]]
    solid = next(c for c in axes.collections if isinstance(c, LineCollection) and c.get_label() != "jumps")
    assert len(solid.get_segments()) == 4
    assert [label.get_text() for label in axes.get_yticklabels()] == [*"abcdef"]


def test_over_time_states_stand_in_the_order_of_their_picture():
    rows = np.broadcast_to(np.full(3, 1 / 3), (3, 1, 3))
    mdp = MDP(rows, np.zeros((3, 1)), initial=np.eye(3)[0])
    picture = Picture(((5.0, 0.0), (-1.0, 0.0), (2.0, 0.0)))
    env = Environment(mdp, NormalReward(mdp.reward), picture=picture)
    axes: Any = plot_trajectory(env, [0, 1, 2]).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "path")
    np.testing.assert_array_equal(line.get_ydata(), [2, 0, 1])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "0"]


def test_a_trajectory_on_the_picture_of_all_steps():
    axes: Any = plot_trajectory(deep_sea(4), [0, 1, 2, 0, 1]).axes[0]
    np.testing.assert_array_equal(path_of(axes), [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4)])
    assert jumps_of(axes) == [[[2, 2], [0, 3]]]
    assert len(parts(axes, Circle)) == 10 + 2  # and a ring around each end of the path


def test_a_trajectory_on_a_plane():
    env = prior_mdp(0, 3)
    env = Environment(env.mdp, env.reward_law, picture=Picture(((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))))
    axes: Any = plot_trajectory(env, [0, 2, 1]).axes[0]
    np.testing.assert_array_equal(path_of(axes), [(0, 0), (0, 1), (1, 0)])
    np.testing.assert_array_equal(path_of(plot_trajectory(env, [(0, 0), (0.5, 1)]).axes[0]), [(0, 0), (0.5, 1)])


def test_one_state_is_a_trajectory():
    for env in (riverswim(), on_a_map(), deep_sea(3)):
        assert plot_trajectory(env, [0]).axes


@pytest.mark.parametrize("name", sorted(set(ENVS) - {"icu_sepsis"}))  # needs a package, and has a test of its own
def test_every_environment_can_be_drawn(name, no_dense):
    env = ENVS[name](**SMALLER.get(name, {}))
    assert env.name in plot_env(env).axes[0].get_title()
    first = int(np.argmax(np.asarray(env.mdp.initial)))
    assert plot_trajectory(env, [first, first]).axes


@pytest.mark.parametrize("name", ["deep_sea", "seven_rooms", "six_arms"])
def test_title_and_legend_are_inside_a_figure_of_its_own(name):
    env = ENVS[name](**SMALLER.get(name, {}))
    for figure in (plot_env(env), plot_trajectory(env, [0, 1])):
        figure.draw_without_rendering()
        drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) >= 0


def test_figures_can_be_rendered_and_axes_be_given(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert plot_env(chain(), axes=left) is figure
    assert plot_trajectory(on_a_map(), [0, 1, 2], axes=right) is figure
    figure.savefig(tmp_path / "two.png", dpi=40)
    assert left.get_title() == "" and len(parts(left, Circle)) == 5 and len(path_of(right)) == 3


def test_the_face_has_both():
    assert bm.plots.plot_env is plot_env and bm.plots.plot_trajectory is plot_trajectory


ANY: Any = "env"


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda: plot_env(ANY), TypeError, "env is a str, expected an Environment or a SimulatedEnvironment"),
        (lambda: plot_trajectory(ANY, [0]), TypeError, "env is a str, expected an Environment"),
        (lambda: plot_env(Simulated(None)), ValueError, "env 'by hand' has neither tables nor a map"),
        (lambda: plot_env(deep_sea(3), step=3), ValueError, "step is 3, expected an index from 0 to 2"),
        (lambda: plot_env(chain(), actions="a"), ValueError, "actions has 1 names, expected 2"),
        (lambda: plot_env(chain(), states="ab"), ValueError, "states has 2 names, expected 5"),
        (lambda: plot_trajectory(chain(), [0], names="ab"), ValueError, "names has 2 names, expected 5"),
        (lambda: plot_trajectory(chain(), []), ValueError, "states is empty, expected at least one state"),
        (lambda: plot_trajectory(chain(), [0, 1, 5]), ValueError, r"states\[2\] is 5, expected a state index"),
        (lambda: plot_trajectory(chain(), [0, -1]), ValueError, r"states\[1\] is -1, expected a state index"),
        (lambda: plot_trajectory(chain(), [0.5]), TypeError, "states has dtype float64, expected integers"),
        (lambda: plot_trajectory(chain(), [(0, 1)]), ValueError, r"states has shape \(1, 2\), expected \(time,\)"),
        (lambda: plot_trajectory(on_a_map(), [[[1]]]), ValueError, r"or \(time, 2\), positions x and y"),
        (
            lambda: plot_trajectory(on_a_map(), [(1, 1), (5, 1)]),
            ValueError,
            r"states\[1\] is \(5, 1\), expected a place on the map of 5 columns and 4 lines",
        ),
        (lambda: plot_trajectory(on_a_map(), [(1, np.nan)]), ValueError, r"states\[0, 1\] is nan, expected a finite"),
        (
            lambda: plot_trajectory(Simulated(Picture((), MAP)), [0, 1]),
            ValueError,
            r"env 'by hand' has no positions of states, expected states of shape \(time, 2\)",
        ),
        (
            lambda: plot_trajectory(deep_sea(3), [0] * 5),
            ValueError,
            "states has 5 entries, expected at most 4, one episode",
        ),
        (
            lambda: plot_env(Environment(chain().mdp, chain().reward_law, picture=Picture(((0.0, 0.0),)))),
            ValueError,
            r"env\.picture has 1 positions, expected 5, one a state",
        ),
    ],
)
def test_bad_input_is_refused(draw, error, message):
    with pytest.raises(error, match=message):
        draw()
