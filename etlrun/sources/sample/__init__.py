"""The data set that etlrun draws by itself, for first runs and tests without a network."""
