"""The report of a growth run: whether a schedule helps, and whether layer roles are why."""
