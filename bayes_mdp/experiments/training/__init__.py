"""Training of deep agents: the compiled loop, the host-stepped one, evaluation, checkpoints (face: `bm.deep`)."""
