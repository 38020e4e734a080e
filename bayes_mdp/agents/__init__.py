"""bayes_mdp.agents"""
