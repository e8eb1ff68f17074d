"""What every backbone and arm must keep, whoever wrote it, and the check that holds it to that."""
