"""GeneratedTraits: what sets the time of a generated kernel, as data. Torch-free: prices are made of it."""

from __future__ import annotations

import msgspec


class GeneratedTraits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kernel. form: flat, tile, rows, loop, product or segments. Sizes in elements, traffic in bytes.

    rows, columns: that it walks over; of a product its result's, `batch` and `inner` the other sizes. axes: dimensions
    that a place is taken apart into. passes: walks over a row. strided: neighbours in memory lie along the rows.
    bytes_read: of each tensor once, and no more of one than is loaded; bytes_asked: of all loads, an element as often
    as a lane loads it; bytes_written;
    bytes_added: by atomics; bytes_started: of outputs that are copied or filled before. loads, full_loads: those that
    differ along rows and columns. broken_bytes: of loads and stores whose neighbouring elements do not lie side by
    side; placed_bytes: at places that were read. item_bytes: of the narrowest full load. arithmetic, special, heavy,
    drawn: executions of operations, of special functions, of those that take tens of instructions, of random numbers.
    reductions, scans, sorts: of them; places: reductions that give one. scanned, ordered: executions of a scan's
    joining and of an order's exchange. configurations: that it is tuned over. flops, dtype: of a product.
    """

    form: str
    rows: int
    columns: int
    axes: int
    passes: int = 1
    strided: bool = False
    bytes_read: int = 0
    bytes_asked: int = 0
    bytes_written: int = 0
    bytes_added: int = 0
    bytes_started: int = 0
    loads: int = 0
    full_loads: int = 0
    stores: int = 0
    broken_bytes: int = 0
    placed_bytes: int = 0
    item_bytes: int = 4
    arithmetic: int = 0
    special: int = 0
    heavy: int = 0
    drawn: int = 0
    reductions: int = 0
    scans: int = 0
    sorts: int = 0
    places: int = 0
    scanned: int = 0
    ordered: int = 0
    configurations: int = 1
    batch: int = 1
    inner: int = 0
    flops: int = 0
    dtype: str = "f32"

    @property
    def bytes_moved(self) -> int:
        """Fewest that it has to read and write; what is added to is read as well."""
        return self.bytes_read + self.bytes_written + 2 * self.bytes_added + self.bytes_started
