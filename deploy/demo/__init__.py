"""`make demo`: a replicated query end to end on this machine, a kill that nobody downstream notices, and the proof."""
