"""Names in the states of modules."""

from __future__ import annotations

from typing import Any


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix away from the keys of a state, in place; those without it stay as they are.

    Example:
        >>> state = {"module.weight": 1, "bias": 2}
        >>> nn.utils.consume_prefix_in_state_dict_if_present(state, "module.")
        >>> state
        {'bias': 2, 'weight': 1}
    """
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", {})
    for key in list(metadata):
        if key in (prefix.removesuffix("."), prefix):
            metadata[""] = metadata.pop(key)
        elif key and key.startswith(prefix):
            metadata[key.removeprefix(prefix)] = metadata.pop(key)
