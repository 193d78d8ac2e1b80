"""Comparisons of systems, trained and measured by one command."""
