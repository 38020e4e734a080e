"""Exploration agents: a belief goes in, a policy comes out. A file is an algorithm of a paper, or a family of them."""

import lazy_loader

# Listed in __init__.pyi, loaded when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
