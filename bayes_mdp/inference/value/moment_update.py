"""Moment updating of a belief about returns (Dearden et al. 1998, section 5.1)."""

from bayes_mdp.inference.value.returns import ReturnBelief
from bayes_mdp.inference.value.student_t import StudentT


def moment_update(own: ReturnBelief, target: StudentT) -> ReturnBelief:
    """`own` after one return whose first two moments are those of `target`.

    The expected return counts as if it had been seen, so the precision grows too quickly (a known flaw of the rule).
    The rate is inf where the target has no variance (its dof <= 2: the next belief has concentration <= 1).
    """
    count = own.pseudo_count + 1.0
    shift = target.loc - own.loc
    rate = own.rate + 0.5 * (target.variance() + own.pseudo_count / count * shift**2)
    return ReturnBelief(own.loc + shift / count, count, own.concentration + 0.5, rate)
