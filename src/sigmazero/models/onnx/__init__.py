"""ONNX files as networks of torch: a reader and a converter of our own."""

from sigmazero.models.onnx.network import OnnxNetwork, UnknownOperator, load_onnx

__all__ = ["OnnxNetwork", "UnknownOperator", "load_onnx"]
