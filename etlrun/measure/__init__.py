"""Performance measurement of a run: input wait, cost of each stage, and the possible gain.

Watched --waits--> Meter --Loop--> Evidence --judge--> Verdict
Sampler --AUTOTUNE's model of the graph--> StageCosts ^
"""
