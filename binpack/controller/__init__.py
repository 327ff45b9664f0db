"""The planner's shell: gate, plan, pin, wait, hand over, repair, release."""
