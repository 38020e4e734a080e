"""bayes_mdp.envs"""
