"""Contrasts that decide published claims: functions from losses (or rows) to rows."""
