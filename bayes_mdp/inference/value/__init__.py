"""bayes_mdp.inference.value"""
