"""Records of jobs, typed, versioned, whole or absent, and the folder of runs that holds them."""
