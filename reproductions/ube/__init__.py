"""[UBE18] (O'Donoghue et al. 2018): The uncertainty Bellman equation and exploration."""
