"""The best plan over a set of plausible MDPs: the sets of rows, and extended value iteration over them."""
