"""Tasks on several hosts: workers carry out operations, a dispatcher gives tasks to them (docs/cluster.md)."""
