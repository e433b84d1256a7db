"""How long a run waited for its data, for which stage, and what could be gained.

Watched --waits--> Meter --Loop--> Evidence --judge--> Verdict
Sampler --AUTOTUNE's model of the graph--> StageCosts ^
"""
