"""Sections that several pages share."""
