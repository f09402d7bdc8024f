"""What a run says about itself: traces, time, memory, reports, names and lines."""
