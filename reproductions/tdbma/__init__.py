"""[TDBMA10] (Downey and Sanner 2010): Temporal difference Bayesian model averaging."""
