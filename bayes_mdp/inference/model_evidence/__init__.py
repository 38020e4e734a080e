"""Log evidences of posteriors of every route, and the Bayes factors of their priors."""
