"""Integrals over a few numbers whose log density can be evaluated at many points at once. NumPy alone."""
