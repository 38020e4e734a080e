"""Beliefs about Q as plain arrays; nothing here imports the rest of the package."""
