"""[OIM08] (Szita and Lorincz 2008): The many faces of optimism."""
