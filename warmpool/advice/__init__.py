"""Which pools there should be: shapes and image sets chosen together, so that chance is shared.

`values` what is asked and answered, `sizing` what a pool costs, `groups` which pools are worth a thought, `partition`
the choice by CP-SAT (the only file here that knows OR-Tools), `propose` joins them.
"""
