"""`remedy`: what to try where simulations show that a method's posteriors are not calibrated."""

from bayes_mdp.utils.messages import see

APPROXIMATIONS = ("svi", "laplace")
INTEGRALS = ("quadrature", "importance")
CHAINS = ("nuts", "collapsed", "factorised", "gibbs")
CLOSED_FORMS = ("exact", "mixture")


def remedy(method: str) -> str:
    """What to try, and the page that says more.

    Args:
        method: of the inference, as `posterior.method` says; another one is taken as the user's own.
    """
    return f"{_sentence(method)} {see('how-to/check-a-posterior')}"


def _sentence(method: str) -> str:
    if method in APPROXIMATIONS:
        return f"{method} is an approximation: use NUTS (or collapsed, exact) where these quantities matter."
    if method in INTEGRALS:
        return (
            "Truths and data must come from the prior that is inferred. Compare one fit with method='collapsed' "
            "(chains): a mode that no start found is missing here. Where the two differ, report it with this file."
        )
    if method in CHAINS:
        return "Look at r-hat and divergences of one fit; more warm-up, more samples, another parametrisation."
    if method in CLOSED_FORMS:
        return (
            "This route is exact: truths and data must come from the prior that is inferred. Report it with this file."
        )
    return "Compare the prior and the likelihood of this fit with the program that the truths are drawn from."
