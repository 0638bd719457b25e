"""How many input values must change before this model is wrong?"""

__version__ = "0.1.0"
