"""What would run, what runs, and in which process."""
