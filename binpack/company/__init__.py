"""Rules between pods: topology spread, (anti-)affinity, host ports, replicas apart. Pure; numpy over nodes."""

from binpack.company.company import COMPANY_REASONS, Company, Cost
from binpack.company.slots import CompanyBySlot

__all__ = ["COMPANY_REASONS", "Company", "CompanyBySlot", "Cost"]
