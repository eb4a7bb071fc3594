"""Timing: how long passes under several plans take."""
