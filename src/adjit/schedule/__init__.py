"""Scheduling: what to run, as which kernel, in which memory."""
