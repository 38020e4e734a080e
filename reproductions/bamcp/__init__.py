"""[BAMCP12] (Guez, Silver and Dayan 2012): Efficient Bayes-adaptive reinforcement learning, the four worlds."""
