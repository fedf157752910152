"""How bytes move and processes live and die."""
