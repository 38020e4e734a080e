"""bayes_mdp.planning"""
