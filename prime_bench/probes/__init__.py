"""Probes: jobs that measure a trained arm, or what an arm costs. Each kind is a module whose `run`
returns the findings.
"""
