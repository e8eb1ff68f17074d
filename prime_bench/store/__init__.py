"""Records of finished jobs: typed, versioned, whole or absent."""
