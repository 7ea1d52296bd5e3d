"""What GPUs can do: datasheet rates with their source, measured ceilings where there are any."""

from __future__ import annotations

import re
from dataclasses import dataclass

TERA = 1e12
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
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
    tf32_rate: float = 0  # matrix units on f32 inputs, where allowed; 0 = none
    f16_rate: float  # matrix units, f16 inputs
    bf16_rate: float = 0  # matrix units, bf16 inputs; 0 = none
    f8_rate: float = 0  # matrix units, fp8 inputs, mxfp8 too; 0 = none
    f4_rate: float = 0  # matrix units, mxfp4 and nvfp4 inputs; 0 = none
    source: str
    measured_copy_rate: float | None = None  # bytes/s read + written by a large device-to-device copy
    measured_matmul_rate: float | None = None  # FLOP/s of a large bf16 matrix product on random data
    measured_source: str = ""

    @property
    def copy_rate(self) -> float:
        """Bytes/s that a kernel can reach: measured where it was, else the datasheet's."""
        return self.measured_copy_rate or self.memory_rate

    @property
    def is_amd(self) -> bool:
        return self.arch.startswith("gfx")

    @property
    def ceilings_measured(self) -> bool:
        return self.measured_copy_rate is not None

    def matmul_rate(self, dtype: str) -> float:
        """FLOP/s of the matrix units on inputs of this dtype; f32 counts as without TF32, torch's default.

        A measured bf16 rate scales the datasheet's other rates of 16 bits and less by the share it reached.
        """
        rate = self._matrix_rate(dtype)
        if self.measured_matmul_rate and rate is not None and self.bf16_rate:
            return rate * self.measured_matmul_rate / self.bf16_rate
        return self._vector_rate(dtype) if rate is None else rate

    def datasheet_matmul_rate(self, dtype: str) -> float:
        """The same as the datasheet has it, whatever was measured."""
        rate = self._matrix_rate(dtype)
        return self._vector_rate(dtype) if rate is None else rate

    def _matrix_rate(self, dtype: str) -> float | None:
        """The datasheet's; None for what goes by the vector units."""
        f8_rate = self.f8_rate or self.f16_rate
        rates = {
            "tf32": self.tf32_rate or self.f32_rate, "f16": self.f16_rate, "bf16": self.bf16_rate or self.f32_rate,
            "f8e4m3": f8_rate, "f8e5m2": f8_rate, "f4e2m1x2": self.f4_rate or f8_rate,
        }  # fmt: skip
        return rates.get(dtype)

    def _vector_rate(self, dtype: str) -> float:
        return self.f32_rate if dtype != "f64" else self.f32_rate / 2


DEVICES: tuple[Device, ...] = (
    Device(
        name="NVIDIA V100", arch="sm_70", matches=("v100",),
        memory_bytes=32e9, memory_rate=0.9e12, l2_bytes=6 * MIB, processors=80,
        f32_rate=15.7 * TERA, f16_rate=125 * TERA,
        source="NVIDIA V100 datasheet (SXM2)",
    ),
    Device(
        name="NVIDIA GeForce RTX 2080 Ti", arch="sm_75", matches=("rtx 2080 ti", "rtx2080ti"),
        memory_bytes=11e9, memory_rate=0.616e12, l2_bytes=5.5 * MIB, processors=68,
        f32_rate=13.4 * TERA, f16_rate=53.8 * TERA,
        source="NVIDIA Turing whitepaper (reference card, fp32 accumulate)",
    ),
    Device(
        name="NVIDIA A100", arch="sm_80", matches=("a100",),
        memory_bytes=80e9, memory_rate=2.039e12, l2_bytes=40 * MIB, processors=108,
        f32_rate=19.5 * TERA, tf32_rate=156 * TERA, f16_rate=312 * TERA, bf16_rate=312 * TERA,
        source="NVIDIA A100 datasheet (SXM 80 GB)",
    ),
    Device(
        name="NVIDIA H100", arch="sm_90", matches=("h100",),
        memory_bytes=80e9, memory_rate=3.35e12, l2_bytes=50 * MIB, processors=132,
        f32_rate=67 * TERA, tf32_rate=494.5 * TERA, f16_rate=989.5 * TERA, bf16_rate=989.5 * TERA,
        f8_rate=1979 * TERA, source="NVIDIA H100 datasheet (SXM)",
    ),
    Device(
        name="NVIDIA H200", arch="sm_90", matches=("h200",),
        memory_bytes=141e9, memory_rate=4.8e12, l2_bytes=60 * MIB, processors=132,
        f32_rate=67 * TERA, tf32_rate=494.5 * TERA, f16_rate=989.5 * TERA, bf16_rate=989.5 * TERA,
        f8_rate=1979 * TERA, source="NVIDIA H200 datasheet (SXM)",
        measured_copy_rate=4.3e12, measured_matmul_rate=790 * TERA,
        measured_source="one NVIDIA H200, torch 2.11.0+cu130, 2026-11-21: 8.6 GB device-to-device copy, bf16 matmul"
        " 8192³; L2 as the device gives it",
    ),
    Device(
        name="NVIDIA B200", arch="sm_100", matches=("b200",),
        memory_bytes=180e9, memory_rate=8.0e12, l2_bytes=126 * MIB, processors=148,
        f32_rate=75 * TERA, tf32_rate=1125 * TERA, f16_rate=2250 * TERA, bf16_rate=2250 * TERA,
        f8_rate=4500 * TERA, f4_rate=9000 * TERA,
        source="bf16, f8 and f4 dense: NVIDIA/exemplar-performance, README, 2026-08-18, which has the memory at 7.7"
        " TB/s; 8 TB/s, f32 and tf32: an eighth of the DGX and HGX B200 boards; L2: CUDA's Blackwell Tuning"
        " Guide, 2026",
    ),
    Device(
        name="NVIDIA B300", arch="sm_103", matches=("b300",),
        memory_bytes=288e9, memory_rate=8.0e12, l2_bytes=126 * MIB, processors=148,
        f32_rate=75 * TERA, tf32_rate=1125 * TERA, f16_rate=2250 * TERA, bf16_rate=2250 * TERA,
        f8_rate=4500 * TERA, f4_rate=13500 * TERA,
        source="bf16, f8 and f4 dense: NVIDIA/exemplar-performance, README, 2026-08-18, which has the memory at 7.7"
        " TB/s on an HGX B300; 288 GB, 8 TB/s: Inside NVIDIA Blackwell Ultra, NVIDIA's technical blog, 2025-08;"
        " f32 and tf32: an eighth of the HGX B300 board; processors as recorded traces have them (160 is the"
        " whole chip); L2 as of the B200",
    ),
    Device(
        name="NVIDIA GeForce RTX 5090", arch="sm_120", matches=("rtx 5090", "rtx5090"),
        memory_bytes=32e9, memory_rate=1.792e12, l2_bytes=96 * MIB, processors=170,
        f32_rate=104.8 * TERA, tf32_rate=104.8 * TERA, f16_rate=209.5 * TERA, bf16_rate=209.5 * TERA,
        f8_rate=419 * TERA, f4_rate=1676 * TERA,
        source="NVIDIA RTX Blackwell GPU Architecture whitepaper v1.1, table 3 (dense, fp32 accumulate), as quoted by"
        " fp4 kernels' authors in 2026; processors, L2 and memory: lamonoai/gpumap, nvidia/GPU.md; f32 and tf32"
        " are 170 SMs x 256 FLOPs x 2.407 GHz",
    ),
    Device(
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition", arch="sm_120", matches=("rtx pro 6000 blackwell server",),
        memory_bytes=96e9, memory_rate=1.597e12, l2_bytes=128 * MIB, processors=188,
        f32_rate=120 * TERA, tf32_rate=240 * TERA, f16_rate=480 * TERA, bf16_rate=480 * TERA,
        f8_rate=960 * TERA, f4_rate=1920 * TERA,
        source="memory and f32: NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet, 2025-12, as quoted in RTX PRO"
        " 6000 Blackwell, inference reference, 2026-09-19; the matrix rates are derived from the Workstation"
        " Edition's by the ratio of f32: NVIDIA gives 1, 2 and 4 PFLOPS with sparsity, rounded",
    ),
    Device(
        name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", arch="sm_120",
        matches=("rtx pro 6000 blackwell max-q",),
        memory_bytes=96e9, memory_rate=1.792e12, l2_bytes=128 * MIB, processors=188,
        f32_rate=109.7 * TERA, tf32_rate=219.5 * TERA, f16_rate=438.9 * TERA, bf16_rate=438.9 * TERA,
        f8_rate=877.9 * TERA, f4_rate=1755.7 * TERA,
        source="NVIDIA RTX Blackwell PRO GPU Architecture whitepaper v1.0, appendix A (dense), as quoted in RTX PRO"
        " 6000 Blackwell, inference reference, 2026-09-19",
    ),
    Device(
        name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition", arch="sm_120", matches=("rtx pro 6000",),
        memory_bytes=96e9, memory_rate=1.792e12, l2_bytes=128 * MIB, processors=188,
        f32_rate=126 * TERA, tf32_rate=251.9 * TERA, f16_rate=503.8 * TERA, bf16_rate=503.8 * TERA,
        f8_rate=1007.6 * TERA, f4_rate=2015.2 * TERA,
        source="NVIDIA RTX Blackwell PRO GPU Architecture whitepaper v1.0, appendix A (dense, fp32 accumulate), as"
        " quoted in RTX PRO 6000 Blackwell, inference reference, 2026-09-19",
    ),
    Device(
        name="NVIDIA GB10", arch="sm_121", matches=("gb10",),
        memory_bytes=128e9, memory_rate=0.273e12, l2_bytes=24 * MIB, processors=48,
        f32_rate=29.7 * TERA, tf32_rate=59.4 * TERA, f16_rate=118.8 * TERA, bf16_rate=118.8 * TERA,
        f8_rate=237.7 * TERA, f4_rate=475.4 * TERA,
        source="processors, clock, L2, memory (256 bits at 8533 MT/s, shared with the CPU): deviceQuery in The DGX"
        " Spark Unpacked, Saiyam Pathak, 2026-06-05; the rates are derived: 48 SMs x 2.418 GHz x the RTX PRO"
        " 6000's FLOPs a clock (f32 256, tf32 512, 16 bits 1024, f8 2048, f4 4096). NVIDIA gives only 1 PFLOPS"
        " of f4 with sparsity",
    ),
    Device(
        name="NVIDIA L40S", arch="sm_89", matches=("l40s",),
        memory_bytes=48e9, memory_rate=0.864e12, l2_bytes=96 * MIB, processors=142,
        f32_rate=91.6 * TERA, tf32_rate=183 * TERA, f16_rate=362 * TERA, bf16_rate=362 * TERA,
        f8_rate=733 * TERA,
        source="dense rates: Machine Learning Engineering, accelerators, Stas Bekman, 2026-08-22; processors, L2 and"
        " memory clock: deviceQuery in the README of cuda-device-query",
    ),
    Device(
        name="NVIDIA L4", arch="sm_89", matches=("nvidia l4",),
        memory_bytes=24e9, memory_rate=0.3e12, l2_bytes=48 * MIB, processors=58,
        f32_rate=30.3 * TERA, tf32_rate=60 * TERA, f16_rate=121 * TERA, bf16_rate=121 * TERA,
        f8_rate=242.5 * TERA, source="NVIDIA L4 datasheet",
    ),
    Device(
        name="NVIDIA GeForce RTX 4090", arch="sm_89", matches=("rtx 4090", "rtx4090"),
        memory_bytes=24e9, memory_rate=1.008e12, l2_bytes=72 * MIB, processors=128,
        f32_rate=82.6 * TERA, tf32_rate=82.6 * TERA, f16_rate=165.2 * TERA, bf16_rate=165.2 * TERA,
        f8_rate=330.3 * TERA, source="NVIDIA Ada whitepaper (fp32 accumulate)",
    ),
    Device(
        name="AMD Instinct MI210", arch="gfx90a", matches=("mi210", "mi250"),
        memory_bytes=64e9, memory_rate=1.6384e12, l2_bytes=8 * MIB, processors=104,
        f32_rate=22.6 * TERA, f16_rate=181 * TERA, bf16_rate=181 * TERA,
        source="AMD Instinct MI210 datasheet; each of the two GPUs of an MI250 has the same",
    ),
    Device(
        name="AMD Instinct MI300X", arch="gfx942", matches=("mi300x",),
        memory_bytes=192e9, memory_rate=5.3e12, l2_bytes=32 * MIB, processors=304,
        f32_rate=163.4 * TERA, tf32_rate=653.7 * TERA, f16_rate=1307.4 * TERA, bf16_rate=1307.4 * TERA,
        f8_rate=2614.9 * TERA, source="AMD Instinct MI300X datasheet",
    ),
    Device(
        name="AMD Instinct MI325X", arch="gfx942", matches=("mi325x",),
        memory_bytes=256e9, memory_rate=6.0e12, l2_bytes=32 * MIB, processors=304,
        f32_rate=163.4 * TERA, tf32_rate=653.7 * TERA, f16_rate=1307.4 * TERA, bf16_rate=1307.4 * TERA,
        f8_rate=2614.9 * TERA,
        source="16 bits 1.3 and f8 2.61 PFLOPS dense: ROCm Blogs, Typical Attained FLOPs, AMD, 2026-09, to the digits"
        " of the MI300X, of the same compute units and clock; memory, f32, tf32: Machine Learning Engineering,"
        " Stas Bekman, 2026-08-22; compute units, L2: ROCm documentation, AMD GPU specifications, 7.13",
    ),
    Device(
        name="AMD Instinct MI350X", arch="gfx950", matches=("mi350x",),
        memory_bytes=288e9, memory_rate=8.0e12, l2_bytes=32 * MIB, processors=256,
        f32_rate=144.2 * TERA, f16_rate=2306.9 * TERA, bf16_rate=2306.9 * TERA,
        f8_rate=4613.7 * TERA, f4_rate=9227.5 * TERA,
        source="ROCm documentation, AMD Instinct MI350 Series microarchitecture, 2026 (f4: MXFP4; no TF32); its 2.3,"
        " 4.6 and 9.2 PFLOPS to more digits: 256 CUs x 2.2 GHz x 4096, 8192 and 16384 FLOPs",
    ),
    Device(
        name="AMD Instinct MI355X", arch="gfx950", matches=("mi355x",),
        memory_bytes=288e9, memory_rate=8.0e12, l2_bytes=32 * MIB, processors=256,
        f32_rate=157.3 * TERA, f16_rate=2516.6 * TERA, bf16_rate=2516.6 * TERA,
        f8_rate=5033.2 * TERA, f4_rate=10066.3 * TERA,
        source="ROCm documentation, AMD Instinct MI350 Series microarchitecture, 2026 (f4: MXFP4; no TF32); its 2.5, 5"
        " and 10 PFLOPS to more digits: 256 CUs x 2.4 GHz x 4096, 8192 and 16384 FLOPs",
    ),
)  # fmt: skip
"""A kind of GPU is added by its row here alone. Until its ceilings are measured, the datasheet's rates are used."""

DEFAULT_DEVICE = "NVIDIA H200"
"""Used where neither the host nor the trace nor the caller names one; every estimate says for which device it is."""


SMALLER = re.compile(r"laptop|\bmig\b|\d ?d\b")
"""In the names of what is less than the card of that name: a laptop's GPU, a part of one, an export's RTX 5090 D."""


def find_device(name: str | None) -> Device | None:
    """The device meant by a name such as "NVIDIA H100 80GB HBM3", or None where the table has none."""
    if not name:
        return None
    lowercase = name.lower()
    exact = [d for d in DEVICES if d.name.lower() == lowercase]
    card = "" if SMALLER.search(lowercase) else lowercase
    matching = exact or [d for d in DEVICES if any(m in card for m in d.matches)]
    bare = [d for d in DEVICES if d.name.lower().split()[-1] == lowercase]
    return next(iter(matching or bare), None)


@dataclass(frozen=True, slots=True)
class Properties:
    """What a driver tells of a GPU besides its name; 0 for what it does not tell."""

    capability: tuple[int, int] = (0, 0)
    processors: int = 0
    warp_size: int = 0
    memory_bytes: int = 0


SAME_MEMORY = 0.15
"""By how much the driver's bytes differ from the datasheet's: the table's devices tell 6 to 7 % more (binary prefixes),
or less for what the driver keeps. The cards of one architecture differ by a third and more."""


def device_by_properties(properties: Properties) -> Device | None:
    """The one device of the table with this architecture, so many processors and so much memory; None for several, for
    none, and where any of these is not told."""
    matching = [d for d in DEVICES if _has(d, properties)]
    return matching[0] if len(matching) == 1 else None


def _has(device: Device, properties: Properties) -> bool:
    major, minor = _capability(device.arch)
    return (
        properties.warp_size == (64 if device.is_amd else 32)
        and properties.capability == (major, minor)
        and properties.processors == device.processors
        and abs(properties.memory_bytes - device.memory_bytes) <= SAME_MEMORY * device.memory_bytes
    )


def _capability(arch: str) -> tuple[int, int]:
    """sm_90 -> (9, 0); gfx942 -> (9, 4), gfx90a -> (9, 0): ROCm leaves the stepping out."""
    digits = arch.removeprefix("sm_").removeprefix("gfx")
    return (int(digits[:-1]), int(digits[-1])) if arch.startswith("sm_") else (int(digits[0]), int(digits[1]))
