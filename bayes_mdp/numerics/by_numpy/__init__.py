"""Small programs are answered by NumPy: a program that runs for a millisecond is not worth seconds of compilation."""
