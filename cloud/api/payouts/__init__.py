"""Pays owners what is payable, over rails behind one port: reviewed CSV files, or Stripe Connect."""
