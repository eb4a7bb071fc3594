"""What an experiment will take: seconds, memory and bytes on disk, measured before it starts and held against it."""
