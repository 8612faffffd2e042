"""What machines can do at best, and the records in which measurements are written."""
