"""bayes_mdp.calibration"""
