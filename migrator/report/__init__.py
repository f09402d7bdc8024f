"""Reports: how a run is shown. One file a format."""
