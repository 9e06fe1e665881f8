"""The gateway's HTTP routes, one module for each resource."""
