"""Settings: a frozen model for each backbone, arm, data set, protocol and probe. No torch."""
