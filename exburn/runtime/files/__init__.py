"""Files: reading ordinary ones, and writing ones that are whole or not there."""
