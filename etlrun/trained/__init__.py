"""What a training leaves behind: its run is loaded, its model is evaluated, predicts images, is exported."""
