"""The public Python library."""

from tocsin.client.functions import DoNotRetry, FunctionContext, RetryAfter, function

__all__ = ["DoNotRetry", "FunctionContext", "RetryAfter", "function"]
