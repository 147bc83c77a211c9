"""Delivery: push a task's branch, open its pull request, follow it until its checks end."""
