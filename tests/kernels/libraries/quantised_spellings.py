"""Products with weights of 8 and 4 bits as people write them by hand: unpack, scale, multiply. All of 16 rows."""

from __future__ import annotations

_X8 = "x: bf16[16, 512]\nw: i8[256, 512]\ns: bf16[256]\n"
INT8_WEIGHT: dict[str, str] = {
    "a scale a row behind the product": _X8 + "return F.linear(x, w.to(bf16)) * s\n",
    "a scale a row before the product": _X8 + "return F.linear(x, w.to(bf16) * s[:, None])\n",
    "a scale a row before the product, transposed": _X8 + "return x @ (w.to(bf16) * s[:, None]).t()\n",
    "the scale first": _X8 + "return x @ (s[:, None] * w.to(bf16)).t()\n",
    "weights of [inner, outer]": "x: bf16[16, 512]\nw: i8[512, 256]\ns: bf16[256]\nreturn x @ (w.to(bf16) * s)\n",
    "with a bias": _X8 + "b: bf16[256]\nreturn F.linear(x, w.to(bf16) * s[:, None], b)\n",
    "with a zero point": _X8 + "z: bf16[256]\nreturn F.linear(x, (w.to(bf16) - z[:, None]) * s[:, None])\n",
    "bytes of an unsigned type and 128": (
        "x: bf16[16, 512]\nw: u8[256, 512]\ns: bf16[256]\nreturn F.linear(x, (w.to(bf16) - 128) * s[:, None])\n"
    ),
    "scaled in f32": _X8.replace("s: bf16", "s: f32") + "return F.linear(x, (w.float() * s[:, None]).to(bf16))\n",
    "a batch of rows": _X8.replace("16, 512", "2, 8, 512") + "return F.linear(x, w.to(bf16) * s[:, None])\n",
    "a scale a group": (
        "x: bf16[16, 512]\nw: i8[256, 512]\ns: bf16[256, 4]\n"
        "return F.linear(x, (w.to(bf16).view(256, 4, 128) * s[..., None]).view(256, 512))\n"
    ),
    "one scale": "x: bf16[16, 512]\nw: i8[256, 512]\ns: bf16[1]\nreturn F.linear(x, w.to(bf16) * s)\n",
}

_X4 = "x: bf16[16, 1024]\npacked: {t}[256, 512]\ns: bf16[256, 8]\n"
_BYTES = _X4.format(t="u8")
_SCALED = "q = (q.view(256, 8, 128) {zero}) * s[..., None]\nreturn F.linear(x, q.flatten(1))\n"
_WORDS = "x: bf16[16, 1024]\nq: i32[256, 128]\ns: bf16[256, 8]\nshifts: i32[8]\n"
INT4: dict[str, str] = {
    "halves stacked, a zero a group": _BYTES
    + (
        "z: bf16[256, 8]\nlo = (packed & 15).to(bf16)\nhi = (packed >> 4).to(bf16)\n"
        "q = torch.stack((lo, hi), -1).flatten(1)\n" + _SCALED.format(zero="- z[..., None]")
    ),
    "8 taken off the halves": _BYTES
    + (
        "lo = (packed & 15).to(bf16) - 8\nhi = (packed >> 4).to(bf16) - 8\n"
        "q = torch.stack((lo, hi), -1).flatten(1)\n" + _SCALED.format(zero="")
    ),
    "8 taken off the integers": _X4.format(t="i8")
    + (
        "lo = (packed & 15) - 8\nhi = ((packed >> 4) & 15) - 8\n"
        "q = torch.stack((lo, hi), -1).flatten(1).to(bf16)\n" + _SCALED.format(zero="")
    ),
    "halves stacked as integers": _BYTES
    + ("q = torch.stack((packed & 15, packed >> 4), -1).flatten(1).to(bf16)\n" + _SCALED.format(zero="- 8")),
    "halves side by side": _BYTES
    + ("q = torch.cat((packed & 15, packed >> 4), -1).to(bf16)\n" + _SCALED.format(zero="- 8")),
    "the high half first": _BYTES
    + ("q = torch.stack((packed >> 4, packed & 15), -1).flatten(1).to(bf16)\n" + _SCALED.format(zero="- 8")),
    "a scale a row": (
        "x: bf16[16, 1024]\npacked: u8[256, 512]\ns: bf16[256]\n"
        "q = torch.stack((packed & 15, packed >> 4), -1).flatten(1).to(bf16)\n"
        "return F.linear(x, (q - 8) * s[:, None])\n"
    ),
    "a scale a row behind the product": (
        "x: bf16[16, 1024]\npacked: u8[256, 512]\ns: bf16[256]\n"
        "q = torch.stack((packed & 15, packed >> 4), -1).flatten(1).to(bf16)\nreturn F.linear(x, q - 8) * s\n"
    ),
    "scales repeated over their group": _BYTES
    + (
        "q = torch.stack((packed & 15, packed >> 4), -1).flatten(1).to(bf16)\n"
        "return F.linear(x, (q - 8) * s.repeat_interleave(128, 1))\n"
    ),
    "eight to a word, by shifts": _WORDS
    + (
        "u = ((q[..., None] >> shifts) & 15).flatten(1).to(bf16)\n"
        "return x @ ((u - 8) * s.repeat_interleave(128, 1)).t()\n"
    ),
    "eight to a word, with a bias": _WORDS
    + (
        "b: bf16[256]\nu = ((q[..., None] >> shifts) & 15).flatten(1).to(bf16)\n"
        "return F.linear(x, (u.view(256, 8, 128) - 8) * s[..., None].view(256, 8, 1), b)\n"
    ).replace(
        "(u.view(256, 8, 128) - 8) * s[..., None].view(256, 8, 1)",
        "((u.view(256, 8, 128) - 8) * s[..., None]).flatten(1)",
    ),
}

LOOK_ALIKE: dict[str, str] = {
    "weights of 16 bits that are scaled": (
        "x: bf16[16, 512]\nw: bf16[256, 512]\ns: bf16[256]\nreturn F.linear(x, w * s[:, None])\n"
    ),
    "weights of 32-bit integers": (
        "x: bf16[16, 512]\nw: i32[256, 512]\ns: bf16[256]\nreturn F.linear(x, w.to(bf16) * s[:, None])\n"
    ),
    "another part of a word than four bits": _WORDS
    + (
        "u = ((q[..., None] >> shifts) & 7).flatten(1).to(bf16)\n"
        "return x @ ((u - 8) * s.repeat_interleave(128, 1)).t()\n"
    ),
    **{
        name: (
            "x: bf16[16, 1024]\npacked: i8[256, 512]\ns: bf16[256]\n"
            f"lo = (packed & 15){low}\nhi = ((packed >> 4) & 15){high}\n"
            f"q = torch.stack((lo, hi), -1).flatten(1).to(bf16)\nreturn F.linear(x, (q{both}) * s[:, None])\n"
        )
        for name, low, high, both in (
            ("8 taken off the low half only", " - 8", "", ""),
            ("8 taken off the high half only", "", " - 8", ""),
            ("8 taken off the halves and of both again", " - 8", " - 8", " - 8"),
            ("another number taken off each half", " - 8", " - 7", ""),
        )
    },
    "halves of two tensors": (
        "x: bf16[16, 1024]\na: u8[256, 512]\nb: u8[256, 512]\ns: bf16[256]\n"
        "q = torch.stack((a & 15, b >> 4), -1).flatten(1).to(bf16)\nreturn F.linear(x, (q - 8) * s[:, None])\n"
    ),
}
