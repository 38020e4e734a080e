"""Decisions by search: what to do now, given all that will be learnt."""
