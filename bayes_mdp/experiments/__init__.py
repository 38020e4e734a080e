"""bayes_mdp.experiments"""
