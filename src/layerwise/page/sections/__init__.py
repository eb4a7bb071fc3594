"""Sections that the pages of several studies share."""
