"""Searches that exchange changed sites, guided by gradients."""
