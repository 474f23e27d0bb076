"""The workload: NEXMark's persons, auctions and bids from a seed, into topics, a file, or both."""
