"""Posteriors of any prior program by weighted draws: NUTS, variational inference, Laplace."""
