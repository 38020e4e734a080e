"""Sweeps over states in an order that lets news travel far: prioritized, Gauss-Seidel, one policy many times."""
