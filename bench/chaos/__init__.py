"""Churn on a real control plane while everything breaks, judged by an independent count over the API's objects."""
