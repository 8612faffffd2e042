"""Private inference under load: what an arrival rate does to precomputes, queues and latency.

After Garimella et al., "Characterizing and Optimizing End-to-End Systems for Private Inference"
(ASPLOS 2023), sections 3 to 6.
"""
