"""`Evidence`: a log evidence, how far it may be off, and what the error rests on."""

import equinox as eqx


class Evidence(eqx.Module):
    """log p(next states, rewards | states, actions) of all data under a prior; `print` shows it in one line.

    The density is that of the *sequence* of the data: no multinomial coefficient, every base measure included.

    Args:
        log_evidence: in nats.
        standard_error: of `log_evidence`, in nats, Monte Carlo error alone; 0 where it is exact. Of a quadrature it is
            how much the last halving of the grid's spacing changed it.
        method: "exact", "quadrature", "importance" or "bridge".
        dimension: number of unconstrained latent numbers that were integrated over.
        num_draws: draws of the posterior in the estimate; of a quadrature its nodes.
        effective_draws: number of independent draws that they are worth, their autocorrelation or weights considered.
        overlap: of the posterior (made symmetric) and the proposal, from 0 to 1: the integral of p q / (s1 p + s2 q),
            where s1 and s2 are the shares of the draws of either.
        problems: what is wrong with the estimate or the chains behind it, one sentence each; empty: nothing found.
    """

    log_evidence: float
    standard_error: float = 0.0
    method: str = "exact"
    dimension: int = 0
    num_draws: int = 0
    effective_draws: float = 0.0
    overlap: float = 1.0
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.method == "exact":
            return f"log evidence {self.log_evidence:.6g} (exact)"
        if self.method == "quadrature":
            error = f"changed by {self.standard_error:.1g} at the last halving of the grid"
            return f"log evidence {self.log_evidence:.9g} (quadrature: {self.num_draws} nodes, {error})"
        number = "one number" if self.dimension == 1 else f"{self.dimension} numbers"
        how = "importance sampling" if self.method == "importance" else "bridge sampling"
        overlap = "" if self.method == "importance" else f", overlap {self.overlap:.2f}"
        line = (
            f"log evidence {self.log_evidence:.{_decimals(self.standard_error)}f}, standard error "
            f"{self.standard_error:.2g} ({how}: {self.num_draws} draws of {number}, worth "
            f"{self.effective_draws:.0f} independent ones{overlap})"
        )
        return "\n".join([line, *(f"  unreliable: {problem}" for problem in self.problems)])


def _decimals(error: float) -> int:
    """Decimals that show an error to two digits; at most six."""
    decimals = 0
    while decimals < 6 and error * 10**decimals < 10:
        decimals += 1
    return decimals
