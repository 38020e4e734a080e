"""Seeds on several devices: each device plays its share of them, with the program of one device.

Nothing is exchanged inside a chunk: what one seed waits for (`lax.pmax` over the axis of seeds in `time_loop`) are the
seeds of its own device. The axis of seeds is cut into equal parts, so the number of seeds is a multiple of that of the
devices; a snapshot holds all seeds, and a run can be resumed on another number of devices.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from bayes_mdp.utils.memory import memory_limit, too_much
from bayes_mdp.utils.validation import check_count, described

Devices: TypeAlias = int | Sequence[jax.Device] | None  # pyright: ignore[reportInvalidTypeForm]
"""How many of the devices of JAX's default kind, or which; None: one, JAX's default."""

AXIS = "devices"
EACH, ALL = PartitionSpec(AXIS), PartitionSpec()
"""An array that is cut along its axis of seeds, and one that every device has."""


def check_devices(name: str, devices: object) -> None:
    """Refuse what are no devices.

    Raises:
        TypeError: neither an integer nor devices. ValueError: fewer than one, more than there are, or one twice.
    """
    if devices is None:
        return
    if isinstance(devices, (list, tuple)):
        wrong = next((i for i, one in enumerate(devices) if not isinstance(one, jax.Device)), None)
        if wrong is not None:
            raise TypeError(f"{name}[{wrong}] is {described(devices[wrong])}, expected a device (see jax.devices())")
        if not devices or len(set(devices)) < len(devices):
            raise ValueError(
                f"{name} has {len(devices)} devices, {len(set(devices))} different ones, expected each once"
            )
        return
    check_count(name, devices)
    there = jax.devices()
    if int(devices) > len(there):  # pyright: ignore[reportArgumentType] - an integer
        raise ValueError(
            f"{name} is {devices}, expected at most {len(there)}, the {there[0].platform} devices that JAX has"
        )


def seed_mesh(devices: Devices, num_seeds: int) -> Mesh | None:
    """The devices in a row, for the axis of seeds; None: the default device.

    Raises:
        ValueError: the number of seeds is no multiple of theirs.
    """
    if devices is None:
        return None
    chosen = list(jax.devices()[:devices] if isinstance(devices, int) else devices)
    if num_seeds % len(chosen):
        raise ValueError(f"num_seeds is {num_seeds}, expected a multiple of {len(chosen)}, the number of devices")
    return Mesh(np.asarray(chosen), (AXIS,))


def on_each_device(function: Callable[..., Any], mesh: Mesh | None, specs: tuple[PyTree, ...]) -> Callable[..., Any]:
    """`function` of arrays with an axis of seeds, on every device for its seeds; all it returns has that axis.

    Args:
        function: traceable.
        mesh: of `seed_mesh`; None: the function itself.
        specs: of its arguments, `EACH` or `ALL` for every array of each.
    """
    if mesh is None:
        return function
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=EACH, check_vma=False)


def placed(mesh: Mesh | None, tree: PyTree, spec: PyTree) -> PyTree:
    """The arrays of a tree on the devices, once: else every call would send them again.

    Args:
        mesh: of `seed_mesh`; None: the tree as it is.
        tree: of arrays and keys.
        spec: of all of its arrays, or a tree like it.
    """
    if mesh is None:
        return tree
    specs = spec if not isinstance(spec, PartitionSpec) else jax.tree.map(lambda _: spec, tree)
    return jax.tree.map(lambda leaf, one: jax.device_put(leaf, NamedSharding(mesh, one)), tree, specs)


def check_seeds_fit(num_seeds: int, mesh: Mesh | None, carry: PyTree) -> None:
    """Refuse seeds whose state alone (before what a plan needs) takes more than half of the memory that is left.

    Devices that are CPUs share one memory; of others each has its own.

    Args:
        num_seeds: for the message.
        mesh: of `seed_mesh`.
        carry: the state of all seeds, or its shapes and types.

    Raises:
        ValueError: it does not fit.
    """
    needed = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(carry))
    devices = [jax.devices()[0]] if mesh is None else list(mesh.devices.flat)
    limit, whose = memory_limit(), "half of what is free"
    left = [_left(device) for device in devices]
    if all(x is not None for x in left):
        needed, limit, whose = needed / len(devices), min(x for x in left if x is not None) // 2, "half of a device"
    if needed > limit:
        raise too_much(f"num_seeds is {num_seeds}", needed, limit, whose, "fewer seeds take less, or more devices")


def _left(device: jax.Device) -> int | None:  # pyright: ignore[reportInvalidTypeForm]
    """Bytes that a device has left, where it reports them."""
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None
