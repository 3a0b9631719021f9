"""Logs for trackers and boards, sent by a thread."""
