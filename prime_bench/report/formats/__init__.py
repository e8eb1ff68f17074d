"""A report as text, a module for each format. All print the same digits."""
