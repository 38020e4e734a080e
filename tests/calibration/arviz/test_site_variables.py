"""Names that collide with nothing, and axes with the names of their plates."""

from bayes_mdp.calibration.arviz.export import SiteVariables
from bayes_mdp.calibration.belief.program_run import SiteFacts


def _latent(*axes: str | None, shape: tuple[int, ...]) -> SiteFacts:
    return SiteFacts("latent", shape, axes, len(shape))


def _variables(**sites: SiteFacts) -> SiteVariables:
    named = {name.replace("__", "/"): facts for name, facts in sites.items()}
    return SiteVariables(["reward_mean"], {"state": 3, "action": 2}, ["chain", "draw"], named)


def test_names_that_are_taken_get_a_suffix():
    scalar = _latent(shape=())
    found = _variables(reward_mean=scalar, chain=scalar, state=scalar, reward_mean_site=scalar, a__b=scalar, m=scalar)
    assert found.names["reward_mean"] == "reward_mean_site"
    assert found.names["reward_mean_site"] == "reward_mean_site_site"
    assert (found.names["chain"], found.names["state"]) == ("chain_site", "state_site")
    assert (found.names["a/b"], found.names["m"]) == ("a.b", "m")


def test_axes_have_the_names_of_free_plates_of_the_right_size():
    found = _variables(
        x=_latent("state", "action", None, shape=(3, 2, 4)),
        shared=_latent("state", "action", shape=(1, 2)),
        grouped=_latent("group", shape=(5,)),
        other=_latent("group", shape=(6,)),
        odd=_latent("draw", "x", "a/b", shape=(2, 2, 2)),
        twice=_latent("group", "group", shape=(5, 5)),
    )
    assert found.dims["x"] == ("state", "action", "x_dim_2")
    # One row for all states: its only entry is not the first state.
    assert found.dims["shared"] == ("shared_dim_0", "action")
    assert found.dims["grouped"] == ("group",)
    assert found.dims["other"] == ("other_dim_0",)
    assert found.dims["odd"] == ("odd_dim_0", "odd_dim_1", "odd_dim_2")
    assert found.dims["twice"] == ("group", "twice_dim_1")
