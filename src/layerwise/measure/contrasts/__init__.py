"""Contrasts that test published claims, computed from losses or from result rows."""
