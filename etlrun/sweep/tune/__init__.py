"""Search for the fastest config: candidates are predicted from costs, raced in short runs, and confirmed in pairs.

space --predict--> candidates --windows, race--> winner --confirm--> overlay, report, page
"""

CACHE_FOLDER = "caches"
"""In the folder of the runs of a search, the caches of the one that is running."""
