"""What is measured, and against what; each script prints JSON lines with ratios from one run (`make bench`)."""
