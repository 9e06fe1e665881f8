"""What a step commits: acceptance by equality, and the seed that a request samples with."""
