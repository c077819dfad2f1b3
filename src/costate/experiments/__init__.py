"""From runs to evidence: sweeps, statistics, figures, reports."""
