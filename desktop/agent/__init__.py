"""The agent: connects a machine to the cloud and keeps its draft worker."""
