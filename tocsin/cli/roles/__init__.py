"""The roles as processes: one composition root for each, and what all of them need to live and to end."""
