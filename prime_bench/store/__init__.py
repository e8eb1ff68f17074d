"""Records of jobs, and the folder of runs that holds them. A record is complete or absent."""
