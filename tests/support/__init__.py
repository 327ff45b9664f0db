"""Builders and fakes shared by all tests."""
