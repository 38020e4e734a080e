"""Agents that plan in the space of histories: what they will learn counts as much as what they know."""
