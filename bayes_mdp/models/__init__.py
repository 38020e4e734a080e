"""bayes_mdp.models"""
