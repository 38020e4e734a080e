"""bayes_mdp.inference"""
