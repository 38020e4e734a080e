"""`explain`: the dry run of `infer`, which route a prior would take and what is in the way of a better one."""

from dataclasses import dataclass

from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.route import prove
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.mdp_spec import Prior

ROLES = {
    "exact": "every site in closed form",
    "mixture": "one closed form for each value of the discrete sites",
    "collapsed": "chains draw the hyperparameters, the rest is in closed form",
    "nuts": "chains draw every site",
}


@dataclass(frozen=True)
class Explanation:
    """How `infer` would proceed with a prior.

    Args:
        route: "exact", "mixture", "collapsed" or "nuts".
        why_not: {better route: a sentence, why it cannot be taken}.
        sites: (name, family, shape) of every latent site, in order.
        reward_law: the family of the law of one reward; "known": numbers.
    """

    route: str
    why_not: dict[str, str]
    sites: tuple[tuple[str, str, tuple[int, ...]], ...]
    reward_law: str

    def __str__(self) -> str:
        lines = [f"route: {self.route} ({ROLES.get(self.route, self.route)})"]
        lines += [f"not {name}: {why.removeprefix('prior: ')}" for name, why in self.why_not.items()]
        lines += [f"rewards: {self.reward_law}"]
        lines += [f"site {name}: {family} {list(shape)}" for name, family, shape in self.sites]
        return "\n".join(lines)


def explain(prior: Prior, space: StateActionSpace) -> Explanation:
    """Which route `infer` would take for a prior, and why not a better one. No data, no chains. Host side.

    The proof is the one that `infer` makes, and is kept for it.

    Args:
        prior: a NumPyro program, space -> `MDPSpec`.
        space: what is known before any data.

    Returns:
        An `Explanation`; print it.

    Raises:
        ValueError, TypeError: as `infer`, for a program that no route infers.
    """
    program, route = prove(prior, space, "auto", NUTS())
    sites = tuple((site.name, site.family, site.shape) for site in program.latents)
    return Explanation(route.fit.method, dict(route.why_not), sites, program.law.family)
