"""What every layer may use: errors, files, streams, the numerics version. Standard library only."""
