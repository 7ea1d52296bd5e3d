"""What GPUs can do: datasheet rates with their source, measured ceilings where there are any."""

from __future__ import annotations

from dataclasses import dataclass

TERA = 1e12
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of GPU. Rates are dense (no structured sparsity), per second, in bytes or FLOPs."""

    name: str  # as torch.cuda.get_device_name() says it, shortened
    arch: str  # "sm_90", "gfx942"
    matches: tuple[str, ...]  # lower-case fragments of names that mean this device
    memory_bytes: float
    memory_rate: float  # bytes/s of HBM or GDDR, read + write, datasheet
    l2_bytes: float
    processors: int  # SMs or CUs
    f32_rate: float  # vector units
    tf32_rate: float  # matrix units on f32 inputs, where allowed; 0 = none
    f16_rate: float  # matrix units, f16 inputs
    bf16_rate: float  # matrix units, bf16 inputs; 0 = none
    f8_rate: float  # matrix units, fp8 inputs; 0 = none
    source: str
    measured_copy_rate: float | None = None  # bytes/s read + written by a large device-to-device copy
    measured_matmul_rate: float | None = None  # FLOP/s of a large bf16 matrix product on random data
    measured_source: str = ""

    @property
    def copy_rate(self) -> float:
        """Bytes/s that a kernel can reach: measured where it was, else the datasheet's."""
        return self.measured_copy_rate or self.memory_rate

    @property
    def ceilings_measured(self) -> bool:
        return self.measured_copy_rate is not None

    def matmul_rate(self, dtype: str) -> float:
        """FLOP/s of the matrix units on inputs of this dtype; f32 counts as without TF32, torch's default.

        A measured bf16 rate scales the datasheet's other 16- and 8-bit rates by the share it reached.
        """
        datasheet = {
            "tf32": self.tf32_rate or self.f32_rate,
            "f16": self.f16_rate,
            "bf16": self.bf16_rate or self.f32_rate,
        }
        datasheet |= {"f8e4m3": self.f8_rate or self.f16_rate, "f8e5m2": self.f8_rate or self.f16_rate}
        rate = datasheet.get(dtype, self.f32_rate if dtype != "f64" else self.f32_rate / 2)
        if self.measured_matmul_rate and dtype in datasheet and self.bf16_rate:
            return rate * self.measured_matmul_rate / self.bf16_rate
        return rate


DEVICES: tuple[Device, ...] = (
    Device("NVIDIA V100", "sm_70", ("v100",), 32e9, 0.9e12, 6 * MIB, 80, 15.7 * TERA, 0, 125 * TERA, 0, 0,
           "NVIDIA V100 datasheet (SXM2)"),
    Device("NVIDIA A100", "sm_80", ("a100",), 80e9, 2.039e12, 40 * MIB, 108, 19.5 * TERA, 156 * TERA, 312 * TERA,
           312 * TERA, 0, "NVIDIA A100 datasheet (SXM 80 GB)"),
    Device("NVIDIA H100", "sm_90", ("h100",), 80e9, 3.35e12, 50 * MIB, 132, 67 * TERA, 494.5 * TERA, 989.5 * TERA,
           989.5 * TERA, 1979 * TERA, "NVIDIA H100 datasheet (SXM)"),
    Device("NVIDIA H200", "sm_90", ("h200",), 141e9, 4.8e12, 60 * MIB, 132, 67 * TERA, 494.5 * TERA, 989.5 * TERA,
           989.5 * TERA, 1979 * TERA, "NVIDIA H200 datasheet (SXM)", 4.3e12, 790 * TERA,
           "one NVIDIA H200, torch 2.11.0+cu130, 2026-11-21: 8.6 GB device-to-device copy, bf16 matmul 8192³;"
           " L2 as the device gives it"),
    Device("NVIDIA B200", "sm_100", ("b200",), 180e9, 8.0e12, 126 * MIB, 148, 75 * TERA, 1125 * TERA, 2250 * TERA,
           2250 * TERA, 4500 * TERA, "NVIDIA HGX B200 datasheet, per GPU"),
    Device("NVIDIA L40S", "sm_89", ("l40s",), 48e9, 0.864e12, 96 * MIB, 142, 91.6 * TERA, 183 * TERA, 362 * TERA,
           362 * TERA, 733 * TERA, "NVIDIA L40S datasheet"),
    Device("NVIDIA L4", "sm_89", ("nvidia l4",), 24e9, 0.3e12, 48 * MIB, 58, 30.3 * TERA, 60 * TERA, 121 * TERA,
           121 * TERA, 242.5 * TERA, "NVIDIA L4 datasheet"),
    Device("NVIDIA GeForce RTX 4090", "sm_89", ("rtx 4090", "rtx4090"), 24e9, 1.008e12, 72 * MIB, 128, 82.6 * TERA,
           82.6 * TERA, 165.2 * TERA, 165.2 * TERA, 330.3 * TERA, "NVIDIA Ada whitepaper (fp32 accumulate)"),
    Device("AMD Instinct MI300X", "gfx942", ("mi300x",), 192e9, 5.3e12, 32 * MIB, 304, 163.4 * TERA, 653.7 * TERA,
           1307.4 * TERA, 1307.4 * TERA, 2614.9 * TERA, "AMD Instinct MI300X datasheet"),
)  # fmt: skip

DEFAULT_DEVICE = "NVIDIA H200"
"""Used where neither the host nor the trace nor the caller names one; every estimate says for which device it is."""


def find_device(name: str | None) -> Device | None:
    """The device meant by a name such as "NVIDIA H100 80GB HBM3", or None where the table has none."""
    if not name:
        return None
    lowercase = name.lower()
    exact = [d for d in DEVICES if d.name.lower() == lowercase]
    matching = exact or [d for d in DEVICES if any(m in lowercase for m in d.matches)]
    bare = [d for d in DEVICES if d.name.lower().split()[-1] == lowercase]
    return next(iter(matching or bare), None)
