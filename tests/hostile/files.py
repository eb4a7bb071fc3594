"""Bad input that concerns files which a user hands in: models, texts, images, tables, schedules, and plans."""

from __future__ import annotations

from hostile import images, models, plans, tables, texts

CASES = (*texts.CASES, *models.CASES, *images.CASES, *tables.CASES, *plans.CASES)
