"""Decisions under a posterior: policies and their values, probability of being optimal, value of information."""

import lazy_loader

# Listed in __init__.pyi, loaded when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
