"""Search for the fastest config: candidates are predicted from costs, raced in short runs, and confirmed in pairs.

space --predict--> candidates --windows, race--> winner --confirm--> overlay, report, page
"""

SEARCH, WINDOWS, CACHE_FOLDER = "tune.json", "windows", "caches"
"""What a search was asked for, the folder of its runs, and in it the caches of the one that is running."""
