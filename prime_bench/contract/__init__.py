"""The rules that every backbone and every arm must satisfy, and the check that tests them."""
