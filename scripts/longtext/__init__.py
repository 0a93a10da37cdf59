"""LONGTEXT, the experiment of docs/longtext/plan.md: its runs, their records, its tables."""
