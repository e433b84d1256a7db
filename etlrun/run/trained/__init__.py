"""What a training leaves behind: its run is loaded, its model is evaluated on a split, and predicts images."""
