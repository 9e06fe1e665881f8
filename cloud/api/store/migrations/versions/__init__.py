"""The steps from one form of the database to the next; a released one is never changed."""
