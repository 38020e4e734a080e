"""`python -m bayes_mdp.cli`."""

import sys

from bayes_mdp.cli import main

sys.exit(main())
