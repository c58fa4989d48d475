"""Schedules that broke a rule, as data, and a runner that replays them."""
