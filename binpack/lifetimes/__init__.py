"""Placement where pods come, wait, stay for a while and leave."""

from binpack.lifetimes.run import simulate_lifetimes
from binpack.lifetimes.values import LIFETIME_POLICIES, LifeResult, LifeSetting, Lived

__all__ = ["LIFETIME_POLICIES", "LifeResult", "LifeSetting", "Lived", "simulate_lifetimes"]
